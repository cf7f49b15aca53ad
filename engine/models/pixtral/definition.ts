/** Pixtral in LLaVA's form, and Mistral 3: pictures in their own sizes, with a token at the end of each row. */
import { buildDecoderGraph } from "../llama/decoder-graph.ts";
import { decoderDimensions } from "../llama/definition.ts";
import { decoderNames } from "../llava/definition.ts";
import type { ConfiguredModel, ModelDefinition } from "../model-definition.ts";
import { parseMistral3Config, parsePixtralConfig, type PixtralConfig } from "./config.ts";
import { pixtralInputs } from "./processor.ts";
import { pixtralVisionEncoder } from "./vision-encoder.ts";

export const pixtralDefinition: ModelDefinition = {
  architecture: "LlavaForConditionalGeneration",
  towerType: "pixtral",
  images: pixtralInputs,
  configure: (json) => configureModel(parsePixtralConfig(json)),
};

export const mistral3Definition: ModelDefinition = {
  architecture: "Mistral3ForConditionalGeneration",
  images: pixtralInputs,
  configure: (json) => configureModel(parseMistral3Config(json)),
};

function configureModel(config: PixtralConfig): ConfiguredModel {
  const { text } = config;
  return {
    decoder: decoderDimensions(text),
    maxPositionEmbeddings: text.maxPositionEmbeddings,
    imageTokenId: config.imageTokenId,
    visionEncoder: pixtralVisionEncoder(config),
    buildDecoder(context, maxModelLen) {
      const names = decoderNames(context.weights);
      buildDecoderGraph(context, { config: text, ...names, acceptsImages: true, maxModelLen });
    },
  };
}
