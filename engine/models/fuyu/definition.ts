/** Fuyu: one linear layer turns the patches of a picture of any size into embeddings. */
import { reshapeTo } from "../../graph/shape-ops.ts";
import { cast } from "../../graph/standard-ops.ts";
import type { GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import type { ConfiguredModel, ModelDefinition } from "../model-definition.ts";
import { buildPersimmonGraph } from "../persimmon/decoder-graph.ts";
import { findPrefix } from "../weight-source.ts";
import { parseFuyuConfig, type FuyuConfig } from "./config.ts";
import { fuyuInputs } from "./processor.ts";

// Names of tensors changed with transformers' versions. These are the names that transformers still reads.
const decoderPrefixes = ["model.language_model.", "language_model.model.", "model.language_model.model."];
const headNames = ["lm_head", "language_model.lm_head", "model.language_model.lm_head"];
const projectionNames = ["model.vision_embed_tokens", "vision_embed_tokens"];

/** Checkpoints on the hub have no template. Fuyu knows no roles: it answers lines of text after one image. */
const chatTemplate = `{% for message in messages %}{{ message['content'] }}{{ '\\n' }}{% endfor %}`;

export const fuyuDefinition: ModelDefinition = {
  architecture: "FuyuForCausalLM",
  images: fuyuInputs,
  chatTemplate,
  configure(json): ConfiguredModel {
    const config = parseFuyuConfig(json);
    const { numLayers, numHeads, headDim, hiddenSize, vocabSize } = config.text;
    return {
      decoder: { numLayers, numKvHeads: numHeads, headDim, hiddenSize, imageWidth: hiddenSize, vocabSize },
      maxPositionEmbeddings: config.text.maxPositionEmbeddings,
      imageTokenId: config.imageTokenId,
      visionEncoder: {
        inputs: [{ name: imagePatches, elementType: "float32", shape: [patches, patchFeatures(config)] }],
        imageSize: config.patchSize,
        numImageTokens: 1,
        build: (context) => buildVisionEncoder(context, config),
      },
      buildDecoder(context, maxModelLen) {
        buildPersimmonGraph(context, {
          config: config.text,
          prefix: findPrefix(context.weights, decoderPrefixes, "embed_tokens.weight"),
          headName: findPrefix(context.weights, headNames, ".weight"),
          acceptsImages: true,
          maxModelLen,
        });
      },
    };
  },
};

const imagePatches = "image_patches";
const patches = "numPatches";

/** A patch's pixels row by row, the colours of a pixel side by side. */
function patchFeatures({ patchSize, numChannels }: FuyuConfig): number {
  return patchSize * patchSize * numChannels;
}

/** `image_patches` [1, numPatches, features] to `image_features` [1, numPatches, hiddenSize]. */
function buildVisionEncoder(context: GraphContext, config: FuyuConfig): void {
  const { graph, weights, precision } = context;
  const inFeatures = patchFeatures(config);
  const { hiddenSize } = config.text;
  const input = graph.input(imagePatches, "float32", [1, patches, inFeatures]);
  const flat = reshapeTo(graph, "patches.flat", input, [patches, inFeatures]);
  const name = findPrefix(weights, projectionNames, ".weight");
  const layer = { name, inFeatures, outFeatures: hiddenSize, hasBias: true };
  const projected = linear(context, cast(graph, "patches", flat, precision.activations), layer, precision.vision);
  const features = cast(graph, "projected.cast", projected, "float32");
  graph.output(reshapeTo(graph, "image_features", features, [1, patches, hiddenSize]));
}
