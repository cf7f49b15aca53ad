/** LLaVA: a vision tower's hidden states, projected to the decoder's width, replace image tokens. */
import { invariant } from "../../contract/errors.ts";
import { reshapeTo } from "../../graph/shape-ops.ts";
import { concat, slice } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { applyActivation, type ActivationName } from "../activation.ts";
import { projectorContext, type GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import { buildDecoderGraph } from "../llama/decoder-graph.ts";
import { decoderDimensions } from "../llama/definition.ts";
import type { ConfiguredModel, ModelDefinition, VisionEncoderDefinition } from "../model-definition.ts";
import { createPictureEncoder } from "../vision-transformer/picture-encoder.ts";
import { findPrefix, type WeightSource } from "../weight-source.ts";
import { parseLlavaConfig, type LlavaConfig } from "./config.ts";
import { llavaInputs } from "./processor.ts";

export const llavaDefinition: ModelDefinition = {
  architecture: "LlavaForConditionalGeneration",
  images: llavaInputs,
  configure(json): ConfiguredModel {
    const config = parseLlavaConfig(json);
    return {
      decoder: decoderDimensions(config.text),
      maxPositionEmbeddings: config.text.maxPositionEmbeddings,
      imageTokenId: config.imageTokenId,
      visionEncoder: llavaVisionEncoder(config, config.text.hiddenSize),
      buildDecoder(context, maxModelLen) {
        const names = decoderNames(context.weights);
        buildDecoderGraph(context, { config: config.text, ...names, acceptsImages: true, maxModelLen });
      },
    };
  },
};

// Names of tensors changed with transformers' versions. These are the names that transformers still reads.
const decoderPrefixes = ["language_model.model.", "model.language_model.", "language_model."];
export const towerPrefixes = [
  "vision_tower.vision_model.",
  "model.vision_tower.vision_model.",
  "vision_tower.",
  "model.vision_tower.",
  // LightOnOCR's.
  "vision_encoder.",
  "model.vision_encoder.",
];
export const projectorPrefixes = [
  "multi_modal_projector.",
  "model.multi_modal_projector.",
  "vision_projection.",
  "model.vision_projection.",
];

/** How the checkpoint names the decoder's tensors. */
export function decoderNames(weights: WeightSource): { readonly prefix: string; readonly headName: string } {
  return {
    prefix: findPrefix(weights, decoderPrefixes, "embed_tokens.weight"),
    headName: weights.has("language_model.lm_head.weight") ? "language_model.lm_head" : "lm_head",
  };
}

/** @param hiddenSize Width of the decoder. */
export function llavaVisionEncoder(config: Omit<LlavaConfig, "text">, hiddenSize: number): VisionEncoderDefinition {
  const { vision, numImageTokens } = config;
  return createPictureEncoder({
    ...vision,
    numImageTokens,
    hiddenSize,
    hasProjector: true,
    embed: (context, pixels) => embedPictures(context, config, pixels, hiddenSize).embedded,
  });
}

/**
 * From pixels, [numImages, ...], to the projected features of all pictures, [numImages * numImageTokens, hiddenSize].
 *
 * @returns Also the context of the projector, for graphs that go on from there.
 */
export function embedPictures(
  context: GraphContext,
  config: Omit<LlavaConfig, "text">,
  pixels: Value,
  hiddenSize: number,
): { readonly embedded: Value; readonly context: GraphContext } {
  const projector = projectorContext(context, pictureFeatures(context, config, pixels));
  const shape = {
    activation: config.projectorActivation,
    hasBias: config.projectorHasBias,
    inFeatures: config.vision.hiddenSize * config.featureLayers.length,
    outFeatures: hiddenSize,
  };
  return { embedded: buildProjector(projector.context, shape, projector.input), context: projector.context };
}

/** [numImages * numImageTokens, features of all feature layers]. */
function pictureFeatures(context: GraphContext, config: Omit<LlavaConfig, "text">, pixels: Value): Value {
  const { graph, weights } = context;
  const { tower, vision, featureLayers, keepsFirstToken } = config;
  const towerPrefix = findPrefix(weights, towerPrefixes, "embeddings.patch_embedding.weight");
  const states = tower
    .build(context, vision, towerPrefix, pixels, featureLayers)
    .map((state, index) => (keepsFirstToken ? state : slice(graph, `features.${index}`, state, { axis: 1, start: 1 })));
  const [first] = states;
  invariant(first !== undefined, "there is at least one feature layer");
  const features = states.length === 1 ? first : concat(graph, "features", states, 2);
  const featureSize = vision.hiddenSize * states.length;
  return reshapeTo(graph, "features.flat", features, ["numImages * numImageTokens", featureSize]);
}

export interface ProjectorShape {
  readonly activation: ActivationName;
  readonly hasBias: boolean;
  readonly inFeatures: number;
  /** Between both layers. Default: `outFeatures`. */
  readonly hiddenFeatures?: number;
  /** Width of the decoder. */
  readonly outFeatures: number;
  /** Of both layers. Default: those that transformers gives them. */
  readonly names?: { readonly first: string; readonly second: string };
}

/** [tokens, inFeatures] to [tokens, outFeatures], with the precision of `projectorContext`. */
export function buildProjector(context: GraphContext, shape: ProjectorShape, input: Value): Value {
  const { graph, weights, precision } = context;
  const { activation, hasBias, inFeatures, outFeatures, hiddenFeatures = outFeatures } = shape;
  const prefix = findPrefix(weights, projectorPrefixes, "linear_1.weight");
  const { names = { first: `${prefix}linear_1`, second: `${prefix}linear_2` } } = shape;
  const up = { name: names.first, inFeatures, outFeatures: hiddenFeatures, hasBias };
  const raised = linear(context, input, up, precision.vision);
  const activated = applyActivation(graph, `${names.first}.activation`, raised, activation);
  const down = { name: names.second, inFeatures: hiddenFeatures, outFeatures, hasBias };
  return linear(context, activated, down, precision.vision);
}
