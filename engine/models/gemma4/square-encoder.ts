/** The frame of Gemma 4's encoders: the patches of a picture in its own shape become an embedding of each square. */
import { simplifiedLayerNormalization } from "../../graph/contrib-ops.ts";
import { reshapeTo } from "../../graph/shape-ops.ts";
import { cast } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { projectorContext, type GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import type { VisionEncoderDefinition } from "../model-definition.ts";
import { patches } from "../patches/patch-rotary.ts";
import { findPrefix } from "../weight-source.ts";

const pixelValues = "pixel_values";
const imageGrid = "image_grid_thw";
const NUM_CHANNELS = 3;

/** Number of squares of a picture. */
export const squares = "numSquares";

export interface SquareSizes {
  readonly patchSize: number;
  /** Side of the squares of patches that become one embedding. */
  readonly poolingSize: number;
}

export interface PatchInputs {
  /** float [numPatches, features], as `patchTensors` orders them. */
  readonly pixels: Value;
  /** int64 [1, 3]: 1, rows and columns of patches. */
  readonly grid: Value;
}

export interface SquareEncoder {
  /**
   * Returns float [numSquares, width], normalised. Its type need not be that of the activations: the projection has a
   * type of its own.
   */
  readonly embedSquares: (context: GraphContext, inputs: PatchInputs) => Value;
  /** Of what `embedSquares` returns. */
  readonly width: number;
  /** Rows, and columns, of patches whose positions are known. */
  readonly numPositions: number;
  /** Width of the decoder. */
  readonly hiddenSize: number;
  /** Of the projection, `embedding_projection`: the first that the checkpoint has. */
  readonly projectorPrefixes: readonly string[];
}

export function patchFeatures({ patchSize }: Pick<SquareSizes, "patchSize">): number {
  return NUM_CHANNELS * patchSize ** 2;
}

export function createSquareEncoder(
  { patchSize, poolingSize }: SquareSizes,
  encoder: SquareEncoder,
): VisionEncoderDefinition {
  return {
    inputs: [
      { name: pixelValues, elementType: "float32", shape: [patches, patchFeatures({ patchSize })] },
      { name: imageGrid, elementType: "int64", shape: [3] },
    ],
    imageSize: patchSize * poolingSize,
    numImageTokens: 1,
    hasProjector: true,
    imageOptions: {
      patch_size: patchSize,
      pooling_kernel_size: poolingSize,
      position_embedding_size: encoder.numPositions,
    },
    largestSizes: (numEmbeddings) =>
      new Map([
        [patches, numEmbeddings * poolingSize ** 2],
        [squares, numEmbeddings],
      ]),
    build: (context) => buildEncoder(context, patchFeatures({ patchSize }), encoder),
  };
}

/** `pixel_values` and `image_grid_thw` to `image_features` [1, numPatches / poolingSize^2, hiddenSize]. */
function buildEncoder(
  context: GraphContext,
  numFeatures: number,
  { embedSquares, width, hiddenSize, projectorPrefixes }: SquareEncoder,
): void {
  const { graph, weights, precision } = context;
  const input = graph.input(pixelValues, "float32", [1, patches, numFeatures]);
  const grid = graph.input(imageGrid, "int64", [1, 3]);
  const flat = reshapeTo(graph, "patches.flat", input, [patches, numFeatures]);
  const pixels = cast(graph, "pixels", flat, precision.activations);

  const projector = projectorContext(context, embedSquares(context, { pixels, grid }));
  const prefix = findPrefix(weights, projectorPrefixes, "embedding_projection.weight");
  const layer = { name: `${prefix}embedding_projection`, inFeatures: width, outFeatures: hiddenSize, hasBias: false };
  const { precision: own } = projector.context;
  const projected = linear(projector.context, projector.input, layer, own.vision);
  const item = cast(graph, "projected.cast", projected, "float32");
  graph.output(reshapeTo(graph, "image_features", item, [1, "numEmbeddings", hiddenSize]));
}

/** The root mean square norm without weights that precedes the projection. */
export function normaliseSquares(
  { graph }: GraphContext,
  name: string,
  rows: Value,
  { width, epsilon }: { readonly width: number; readonly epsilon: number },
): Value {
  const ones = Array.from({ length: width }, () => 1);
  const weight = graph.constant(`${name}.ones`, rows.elementType, [width], ones);
  return simplifiedLayerNormalization(graph, name, { input: rows, weight, epsilon });
}
