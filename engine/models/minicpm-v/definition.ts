/** MiniCPM-V 4.6 and 4.7 and MiniCPM-OCR: a picture and its slices in SigLIP, and Qwen3.5's decoder with plain positions. */
import type { ConfiguredModel, ModelDefinition } from "../model-definition.ts";
import { buildQwen35Decoder } from "../qwen3-5/decoder-graph.ts";
import { decoderDimensions } from "../qwen3-5/definition.ts";
import { miniCpmOcr, miniCpmV46, miniCpmV47, parseMiniCpmVConfig, type MiniCpmVKind } from "./config.ts";
import { miniCpmV46Inputs, miniCpmV47Inputs, miniCpmVInputs } from "./processor.ts";
import { miniCpmVVisionEncoder } from "./vision-encoder.ts";

export const miniCpmV46Definition = createDefinition(
  "MiniCPMV4_6ForConditionalGeneration",
  miniCpmV46,
  miniCpmV46Inputs,
);
export const miniCpmV47Definition = createDefinition(
  "MiniCPMV4_7ForConditionalGeneration",
  miniCpmV47,
  miniCpmV47Inputs,
);
export const miniCpmOcrDefinition = createDefinition("MiniCPMOcrForConditionalGeneration", miniCpmOcr, miniCpmVInputs);

function createDefinition(
  architecture: string,
  kind: MiniCpmVKind,
  images: ModelDefinition["images"],
): ModelDefinition {
  return {
    architecture,
    images,
    configure(json): ConfiguredModel {
      const config = parseMiniCpmVConfig(json, kind);
      const { text } = config;
      return {
        decoder: { ...decoderDimensions(text), takesPositions: kind.hasCanvas },
        maxPositionEmbeddings: text.maxPositionEmbeddings,
        imageTokenId: config.imageTokenId,
        visionEncoder: miniCpmVVisionEncoder(config),
        buildDecoder(context, maxModelLen) {
          const inputs = { acceptsImages: true, takesPositions: kind.hasCanvas };
          buildQwen35Decoder(context, { config: text, prefix: "model.language_model.", ...inputs, maxModelLen });
        },
      };
    },
  };
}
