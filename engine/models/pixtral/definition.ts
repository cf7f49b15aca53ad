/** Pixtral in LLaVA's form, Mistral 3 and LightOnOCR: pictures in their own sizes. */
import { buildDecoderGraph } from "../llama/decoder-graph.ts";
import { decoderDimensions } from "../llama/definition.ts";
import { decoderNames } from "../llava/definition.ts";
import type { ConfiguredModel, ModelDefinition } from "../model-definition.ts";
import { parseLightOnOcrConfig, parseMistral3Config, parsePixtralConfig, type PixtralConfig } from "./config.ts";
import { lightOnOcrInputs, pixtralInputs } from "./processor.ts";
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

export const lightOnOcrDefinition = createLightOnOcrDefinition("LightOnOcrForConditionalGeneration");
/** As the class was called before it was part of transformers. */
export const earlyLightOnOcrDefinition = createLightOnOcrDefinition("LightOnOCRForConditionalGeneration");

function createLightOnOcrDefinition(architecture: string): ModelDefinition {
  return { architecture, images: lightOnOcrInputs, configure: (json) => configureModel(parseLightOnOcrConfig(json)) };
}

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
