/** Molmo 2 (`allenai/Molmo2-4B`, `Molmo2-8B`): overlapping crops, and pictures whose tokens all see each other. */
import { buildDecoderGraph } from "../llama/decoder-graph.ts";
import { decoderDimensions } from "../llama/definition.ts";
import type { LayerNames } from "../llama/layer-names.ts";
import type { ConfiguredModel, ModelDefinition } from "../model-definition.ts";
import { parseMolmo2Config } from "./config.ts";
import { imagePlaceholder, molmo2Inputs } from "./processor.ts";
import { addedTable, molmo2VisionEncoder } from "./vision-encoder.ts";

/** The names on the hub, which transformers keeps in files that it writes. */
const names: LayerNames = {
  table: "wte.embedding",
  layers: "blocks",
  attentionNorm: "attn_norm",
  jointQkv: "att_proj",
  attentionOutput: "attn_out",
  perceptronNorm: "ff_norm",
  jointGates: "ff_proj",
  hasUpFirst: true,
  perceptronOutput: "ff_out",
  lastNorm: "ln_f",
};

export const molmo2Definition: ModelDefinition = {
  architecture: "Molmo2ForConditionalGeneration",
  images: molmo2Inputs,
  imagePlaceholder,
  configure(json): ConfiguredModel {
    const config = parseMolmo2Config(json);
    const { text, numAddedTokens } = config;
    return {
      decoder: { ...decoderDimensions(text), keepsImagesWhole: true, joinsImages: true },
      maxPositionEmbeddings: text.maxPositionEmbeddings,
      imageTokenId: config.imageTokenId,
      visionEncoder: molmo2VisionEncoder(config),
      buildDecoder(context, maxModelLen) {
        buildDecoderGraph(context, {
          config: text,
          prefix: "model.transformer.",
          headName: "lm_head",
          names,
          acceptsImages: true,
          seenImages: "all",
          addedTokens: { tableName: addedTable, numTokens: numAddedTokens },
          maxModelLen,
        });
      },
    };
  },
};
