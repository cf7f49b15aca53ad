/** The models of the Qwen-VL family: a tower over the patches of a picture, and a decoder with three-axis positions. */
import { reshapeTo } from "../../graph/shape-ops.ts";
import { cast } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import type { DecoderConfig } from "../llama/config.ts";
import { buildDecoderGraph } from "../llama/decoder-graph.ts";
import { decoderDimensions } from "../llama/definition.ts";
import type { ConfiguredModel, DecoderDimensions, VisionEncoderDefinition } from "../model-definition.ts";
import type { RotarySections } from "../qwen2-vl/config.ts";
import { findPrefix } from "../weight-source.ts";
import { patchFeatures, type PatchShape } from "./patch-embedding.ts";
import { patches } from "./patch-rotary.ts";

// Names of tensors changed with transformers' versions. These are the names that transformers still reads.
const decoderPrefixes = ["model.language_model.", "model."];
const qwenTower: TowerNames = { prefixes: ["model.visual.", "visual."], convolution: "patch_embed.proj" };

const pixelValues = "pixel_values";
const imageGrid = "image_grid_thw";

export interface TowerInputs {
  /** float [numPatches, features], the patches of a square to be merged side by side, row by row of squares. */
  readonly pixels: Value;
  /** int64 [1, 3]: 1 (a still picture), rows and columns of patches. */
  readonly grid: Value;
  /** The decoder's width. */
  readonly outFeatures: number;
}

/**
 * Returns float [numPatches / mergeSize^2, imageWidth], row by row of squares: for each level, `outFeatures` values.
 *
 * @param prefix Prefix of the tower's tensors, e.g. "model.visual."
 */
export type TowerBuilder<Vision> = (
  context: GraphContext,
  vision: Vision,
  prefix: string,
  inputs: TowerInputs,
) => Value;

/** How a checkpoint names its tower. */
export interface TowerNames {
  /** Possible prefixes of its tensors, e.g. "model.visual." */
  readonly prefixes: readonly string[];
  /** Its first layer, below the prefix. */
  readonly convolution: string;
}

type PatchVision = PatchShape & { readonly mergeSize: number };

export interface QwenVlConfig<Vision> {
  readonly text: DecoderConfig;
  readonly rotarySections: RotarySections;
  readonly vision: Vision;
  readonly imageTokenId: number;
  readonly interleavesSections?: boolean;
  /** Number of first layers of the decoder that get features of their own from the tower. Default 0. */
  readonly numImageLevels?: number;
  /** See `DecoderOptions`. */
  readonly isGlm?: boolean;
  readonly imageOptions?: VisionEncoderDefinition["imageOptions"];
  /** Default: Qwen-VL's. */
  readonly towerNames?: TowerNames;
  readonly refusesExports?: VisionEncoderDefinition["refusesExports"];
}

/** A model whose decoder is of the Llama family. */
export function configurePatchModel<Vision extends PatchVision>(
  config: QwenVlConfig<Vision>,
  buildTower: TowerBuilder<Vision>,
): ConfiguredModel {
  const {
    text,
    vision,
    rotarySections,
    interleavesSections = false,
    numImageLevels = 0,
    isGlm = false,
    imageOptions,
    towerNames,
    refusesExports,
  } = config;
  const dimensions = { ...decoderDimensions(text), imageWidth: (1 + numImageLevels) * text.hiddenSize };
  return patchModel(
    {
      vision,
      imageTokenId: config.imageTokenId,
      dimensions,
      maxPositionEmbeddings: text.maxPositionEmbeddings,
      buildDecoder: (context, prefix, maxModelLen) =>
        buildDecoderGraph(context, {
          config: text,
          prefix,
          headName: "lm_head",
          acceptsImages: true,
          maxModelLen,
          rotarySections,
          interleavesSections,
          numImageLevels,
          isGlm,
        }),
      ...(imageOptions && { imageOptions }),
      ...(towerNames && { towerNames }),
      ...(refusesExports !== undefined && { refusesExports }),
    },
    buildTower,
  );
}

export interface PatchModel<Vision> extends Pick<VisionEncoderDefinition, "imageOptions" | "refusesExports"> {
  readonly vision: Vision;
  readonly imageTokenId: number;
  readonly dimensions: DecoderDimensions;
  readonly maxPositionEmbeddings: number;
  /** Default: Qwen-VL's. */
  readonly towerNames?: TowerNames;
  /** Other sizes of the largest picture, by name; see `VisionEncoderDefinition`. */
  sizesOf?(this: void, numSquares: number): ReadonlyMap<string, number>;
  /** @param prefix Prefix of the decoder's tensors, e.g. "model.language_model." */
  buildDecoder(this: void, context: GraphContext, prefix: string, maxModelLen: number): void;
}

/** A model with any decoder. It takes positions on three axes unless its dimensions say otherwise. */
export function patchModel<Vision extends PatchVision>(
  model: PatchModel<Vision>,
  buildTower: TowerBuilder<Vision>,
): ConfiguredModel {
  const { vision, imageTokenId, dimensions, maxPositionEmbeddings, buildDecoder, imageOptions, refusesExports } = model;
  return {
    decoder: { takesPositions: true, ...dimensions },
    maxPositionEmbeddings,
    imageTokenId,
    visionEncoder: {
      inputs: [
        { name: pixelValues, elementType: "float32", shape: [patches, patchFeatures(vision)] },
        { name: imageGrid, elementType: "int64", shape: [3] },
      ],
      imageSize: vision.patchSize * vision.mergeSize,
      numImageTokens: 1,
      largestSizes: (numEmbeddings) =>
        new Map([[patches, numEmbeddings * vision.mergeSize ** 2], ...(model.sizesOf?.(numEmbeddings) ?? [])]),
      ...(imageOptions && { imageOptions }),
      ...(refusesExports !== undefined && { refusesExports }),
      build: (context) => buildVisionEncoder(context, model, buildTower),
    },
    buildDecoder(context, maxModelLen) {
      buildDecoder(context, findPrefix(context.weights, decoderPrefixes, "embed_tokens.weight"), maxModelLen);
    },
  };
}

/** `pixel_values` and `image_grid_thw` to `image_features` [1, numPatches / mergeSize^2, imageWidth]. */
function buildVisionEncoder<Vision extends PatchShape>(
  context: GraphContext,
  { vision, dimensions: { hiddenSize, imageWidth: width }, towerNames = qwenTower }: PatchModel<Vision>,
  buildTower: TowerBuilder<Vision>,
): void {
  const { graph, weights, precision } = context;
  const features = patchFeatures(vision);
  const input = graph.input(pixelValues, "float32", [1, patches, features]);
  const grid = graph.input(imageGrid, "int64", [1, 3]);
  const flat = reshapeTo(graph, "patches.flat", input, [patches, features]);
  const prefix = findPrefix(weights, towerNames.prefixes, `${towerNames.convolution}.weight`);
  const pixels = cast(graph, "pixels", flat, precision.activations);
  const merged = buildTower(context, vision, prefix, { pixels, grid, outFeatures: hiddenSize });
  const item = cast(graph, "merged.cast", merged, "float32");
  graph.output(reshapeTo(graph, "image_features", item, [1, "numSquares", width]));
}
