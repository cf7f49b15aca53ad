/** Qwen2-VL: pictures in their own sizes, with three-axis positions for their embeddings. */
import { cast, reshape } from "../../graph/standard-ops.ts";
import type { GraphContext } from "../graph-context.ts";
import { buildDecoderGraph } from "../llama/decoder-graph.ts";
import { decoderDimensions } from "../llama/definition.ts";
import type { ConfiguredModel, ModelDefinition } from "../model-definition.ts";
import { findPrefix } from "../weight-source.ts";
import { parseQwen2VlConfig, type Qwen2VlConfig } from "./config.ts";
import { qwen2VlInputs } from "./processor.ts";
import { buildVisionTower, patches, patchFeatures } from "./vision-tower.ts";

// Names of tensors changed with transformers' versions. These are the names that transformers still reads.
const decoderPrefixes = ["model.language_model.", "model."];
const towerPrefixes = ["model.visual.", "visual."];

const pixelValues = "pixel_values";
const imageGrid = "image_grid_thw";

export const qwen2VlDefinition: ModelDefinition = {
  architecture: "Qwen2VLForConditionalGeneration",
  images: qwen2VlInputs,
  configure(json): ConfiguredModel {
    const config = parseQwen2VlConfig(json);
    const { text, vision, rotarySections } = config;
    return {
      decoder: { ...decoderDimensions(text), takesPositions: true },
      maxPositionEmbeddings: text.maxPositionEmbeddings,
      imageTokenId: config.imageTokenId,
      visionEncoder: {
        inputs: [
          { name: pixelValues, elementType: "float32", shape: [patches, patchFeatures(vision)] },
          { name: imageGrid, elementType: "int64", shape: [3] },
        ],
        imageSize: vision.patchSize * vision.mergeSize,
        numImageTokens: 1,
        build: (context) => buildVisionEncoder(context, config),
      },
      buildDecoder(context, maxModelLen) {
        const prefix = findPrefix(context.weights, decoderPrefixes, "embed_tokens.weight");
        const names = { prefix, headName: "lm_head" };
        buildDecoderGraph(context, { config: text, ...names, acceptsImages: true, maxModelLen, rotarySections });
      },
    };
  },
};

/** `pixel_values` and `image_grid_thw` to `image_features` [1, numPatches / mergeSize^2, hiddenSize]. */
function buildVisionEncoder(context: GraphContext, { vision, text }: Qwen2VlConfig): void {
  const { graph, weights, precision } = context;
  const features = patchFeatures(vision);
  const input = graph.input(pixelValues, "float32", [1, patches, features]);
  const grid = graph.input(imageGrid, "int64", [1, 3]);
  const flatTarget = graph.constant("patches.flat_shape", "int64", [2], [-1, features]);
  const flat = reshape(graph, "patches.flat", input, flatTarget, [patches, features]);
  const prefix = findPrefix(weights, towerPrefixes, "patch_embed.proj.weight");
  const pixels = cast(graph, "pixels", flat, precision.activations);
  const merged = buildVisionTower(context, vision, prefix, { pixels, grid, outFeatures: text.hiddenSize });
  const itemTarget = graph.constant("item_shape", "int64", [3], [1, -1, text.hiddenSize]);
  const item = cast(graph, "merged.cast", merged, "float32");
  graph.output(reshape(graph, "image_features", item, itemTarget, [1, "numSquares", text.hiddenSize]));
}
