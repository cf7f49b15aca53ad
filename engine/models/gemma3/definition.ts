/** Gemma 3: the text models, and those with pictures. */
import { decoderNames } from "../llava/definition.ts";
import type { ConfiguredModel, DecoderDimensions, ModelDefinition } from "../model-definition.ts";
import { parseGemma3Config, parseGemma3TextConfig, type Gemma3TextConfig } from "./config.ts";
import { buildGemma3Decoder } from "./decoder-graph.ts";
import { gemma3Inputs } from "./processor.ts";
import { gemma3VisionEncoder } from "./vision-encoder.ts";

export const gemma3TextDefinition: ModelDefinition = {
  architecture: "Gemma3ForCausalLM",
  images: null,
  configure(json): ConfiguredModel {
    const config = parseGemma3TextConfig(json, "");
    return {
      decoder: dimensionsOf(config),
      maxPositionEmbeddings: config.maxPositionEmbeddings,
      imageTokenId: null,
      visionEncoder: null,
      buildDecoder(context, maxModelLen) {
        const names = { prefix: "model.", headName: "lm_head" };
        buildGemma3Decoder(context, { config, ...names, acceptsImages: false, maxModelLen });
      },
    };
  },
};

export const gemma3Definition: ModelDefinition = {
  architecture: "Gemma3ForConditionalGeneration",
  images: gemma3Inputs,
  configure(json): ConfiguredModel {
    const config = parseGemma3Config(json);
    return {
      decoder: { ...dimensionsOf(config.text), keepsImagesWhole: true },
      maxPositionEmbeddings: config.text.maxPositionEmbeddings,
      imageTokenId: config.imageTokenId,
      visionEncoder: gemma3VisionEncoder(config),
      buildDecoder(context, maxModelLen) {
        const names = decoderNames(context.weights);
        buildGemma3Decoder(context, { config: config.text, ...names, acceptsImages: true, maxModelLen });
      },
    };
  },
};

function dimensionsOf({ numLayers, numKvHeads, headDim, hiddenSize, vocabSize }: Gemma3TextConfig): DecoderDimensions {
  return { numLayers, numKvHeads, headDim, hiddenSize, imageWidth: hiddenSize, vocabSize };
}
