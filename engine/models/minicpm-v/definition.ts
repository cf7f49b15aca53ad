/** MiniCPM-V 4.6: a picture and its slices in SigLIP, and Qwen3.5's decoder with plain positions. */
import type { ConfiguredModel, ModelDefinition } from "../model-definition.ts";
import { buildQwen35Decoder } from "../qwen3-5/decoder-graph.ts";
import { decoderDimensions } from "../qwen3-5/definition.ts";
import { parseMiniCpmVConfig } from "./config.ts";
import { miniCpmVInputs } from "./processor.ts";
import { miniCpmVVisionEncoder } from "./vision-encoder.ts";

export const miniCpmV46Definition: ModelDefinition = {
  architecture: "MiniCPMV4_6ForConditionalGeneration",
  images: miniCpmVInputs,
  configure(json): ConfiguredModel {
    const config = parseMiniCpmVConfig(json);
    const { text } = config;
    return {
      decoder: decoderDimensions(text),
      maxPositionEmbeddings: text.maxPositionEmbeddings,
      imageTokenId: config.imageTokenId,
      visionEncoder: miniCpmVVisionEncoder(config),
      buildDecoder(context, maxModelLen) {
        const inputs = { acceptsImages: true, takesPositions: false };
        buildQwen35Decoder(context, { config: text, prefix: "model.language_model.", ...inputs, maxModelLen });
      },
    };
  },
};
