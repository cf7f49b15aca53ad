/** Qwen3.5 and its successors, with and without mixture of experts: text models, and models with Qwen3-VL's tower. */
import type { GraphContext } from "../graph-context.ts";
import type { ConfiguredModel, DecoderDimensions, ModelDefinition } from "../model-definition.ts";
import { patchModel } from "../patches/patch-encoder.ts";
import { qwen3VlInputs } from "../qwen3-vl/definition.ts";
import { buildVisionTower } from "../qwen3-vl/vision-tower.ts";
import {
  denseVariant,
  expertVariant,
  parseQwen35Config,
  parseQwen35Text,
  recurrentShape,
  type Qwen35TextConfig,
  type Qwen35Variant,
} from "./config.ts";
import { buildQwen35Decoder } from "./decoder-graph.ts";

export const qwen35TextDefinition = textDefinition("Qwen3_5ForCausalLM", denseVariant);
export const qwen35MoeTextDefinition = textDefinition("Qwen3_5MoeForCausalLM", expertVariant);
export const qwen35Definition = visionDefinition("Qwen3_5ForConditionalGeneration", denseVariant);
export const qwen35MoeDefinition = visionDefinition("Qwen3_5MoeForConditionalGeneration", expertVariant);

function textDefinition(architecture: string, variant: Qwen35Variant): ModelDefinition {
  return {
    architecture,
    images: null,
    configure(json): ConfiguredModel {
      const config = parseQwen35Text(json, "", variant);
      return {
        decoder: decoderDimensions(config),
        maxPositionEmbeddings: config.maxPositionEmbeddings,
        imageTokenId: null,
        visionEncoder: null,
        buildDecoder(context: GraphContext, maxModelLen: number, acceptsImages = false): void {
          buildQwen35Decoder(context, { config, prefix: "model.", acceptsImages, takesPositions: false, maxModelLen });
        },
      };
    },
  };
}

function visionDefinition(architecture: string, variant: Qwen35Variant): ModelDefinition {
  return {
    architecture,
    images: qwen3VlInputs,
    configure(json): ConfiguredModel {
      const { text: config, vision, imageTokenId } = parseQwen35Config(json, variant);
      return patchModel(
        {
          vision,
          imageTokenId,
          dimensions: decoderDimensions(config),
          maxPositionEmbeddings: config.maxPositionEmbeddings,
          buildDecoder: (context, prefix, maxModelLen) =>
            buildQwen35Decoder(context, { config, prefix, acceptsImages: true, takesPositions: true, maxModelLen }),
        },
        buildVisionTower,
      );
    },
  };
}

export function decoderDimensions(config: Qwen35TextConfig): DecoderDimensions {
  const { layerTypes, numKvHeads, headDim, hiddenSize, vocabSize, experts } = config;
  return {
    numLayers: layerTypes.filter((type) => type === "full_attention").length,
    numKvHeads,
    headDim,
    hiddenSize,
    imageWidth: hiddenSize,
    vocabSize,
    recurrent: recurrentShape(config),
    ...(experts && { experts }),
  };
}
