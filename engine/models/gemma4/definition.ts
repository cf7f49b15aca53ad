/** Gemma 4: the text models, and those with pictures. */
import { decoderNames } from "../llava/definition.ts";
import type {
  ConfiguredModel,
  DecoderDimensions,
  ModelDefinition,
  VisionEncoderDefinition,
} from "../model-definition.ts";
import { parseGemma4Config, type Gemma4Config } from "./config.ts";
import { buildGemma4Decoder, numOwners } from "./decoder-graph.ts";
import { gemma4Inputs } from "./processor.ts";
import { parseGemma4TextConfig, type Gemma4TextConfig } from "./text-config.ts";
import { parseUnifiedConfig } from "./unified-config.ts";
import { unifiedEncoder } from "./unified-encoder.ts";
import { gemma4VisionEncoder } from "./vision-encoder.ts";

export const gemma4TextDefinition: ModelDefinition = {
  architecture: "Gemma4ForCausalLM",
  images: null,
  configure(json): ConfiguredModel {
    const config = parseGemma4TextConfig(json, "");
    return {
      decoder: dimensionsOf(config),
      maxPositionEmbeddings: config.maxPositionEmbeddings,
      imageTokenId: null,
      visionEncoder: null,
      buildDecoder(context, maxModelLen) {
        const names = { prefix: "model.", headName: "lm_head" };
        buildGemma4Decoder(context, { config, ...names, acceptsImages: false, mediaTokenIds: [], maxModelLen });
      },
    };
  },
};

export const gemma4Definition = picturesDefinition(
  "Gemma4ForConditionalGeneration",
  parseGemma4Config,
  gemma4VisionEncoder,
);

/** The 12B form, which has no tower. */
export const gemma4UnifiedDefinition = picturesDefinition(
  "Gemma4UnifiedForConditionalGeneration",
  parseUnifiedConfig,
  unifiedEncoder,
);

function picturesDefinition<Vision>(
  architecture: string,
  parse: (json: unknown) => Gemma4Config<Vision>,
  encoderOf: (config: Gemma4Config<Vision>) => VisionEncoderDefinition,
): ModelDefinition {
  return {
    architecture,
    images: gemma4Inputs,
    configure(json): ConfiguredModel {
      const config = parse(json);
      const { text, imageTokenId, mediaTokenIds } = config;
      return {
        decoder: { ...dimensionsOf(text), keepsImagesWhole: text.seesWholeImages },
        maxPositionEmbeddings: text.maxPositionEmbeddings,
        imageTokenId,
        visionEncoder: encoderOf(config),
        buildDecoder(context, maxModelLen) {
          const names = decoderNames(context.weights);
          buildGemma4Decoder(context, { config: text, ...names, acceptsImages: true, mediaTokenIds, maxModelLen });
        },
      };
    },
  };
}

function dimensionsOf(config: Gemma4TextConfig): DecoderDimensions {
  const { layers, hiddenSize, vocabSize, experts } = config;
  const numLayers = numOwners(config);
  const kvHeads = layers.slice(0, numLayers).map(({ numKvHeads, headDim }) => ({ numKvHeads, headDim }));
  const headDim = Math.max(...kvHeads.map((heads) => heads.headDim));
  const numKvHeads = Math.max(...kvHeads.map((heads) => heads.numKvHeads));
  const kvReaders = layers.slice(numLayers).map(({ kvSource }) => kvSource);
  const sizes = { numLayers, numKvHeads, headDim, kvHeads, kvReaders, hiddenSize, imageWidth: hiddenSize, vocabSize };
  return experts === null ? sizes : { ...sizes, experts };
}
