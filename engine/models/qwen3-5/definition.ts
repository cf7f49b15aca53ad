/** Qwen3.5 and its successors without mixture of experts. */
import type { GraphContext } from "../graph-context.ts";
import type { ConfiguredModel, DecoderDimensions, ModelDefinition } from "../model-definition.ts";
import { parseQwen35Text, recurrentShape, type Qwen35TextConfig } from "./config.ts";
import { buildQwen35Decoder } from "./decoder-graph.ts";

export const qwen35TextDefinition: ModelDefinition = {
  architecture: "Qwen3_5ForCausalLM",
  images: null,
  configure(json): ConfiguredModel {
    const config = parseQwen35Text(json, "");
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

function decoderDimensions(config: Qwen35TextConfig): DecoderDimensions {
  const { layerTypes, numKvHeads, headDim, hiddenSize, vocabSize } = config;
  return {
    numLayers: layerTypes.filter((type) => type === "full_attention").length,
    numKvHeads,
    headDim,
    hiddenSize,
    imageWidth: hiddenSize,
    vocabSize,
    recurrent: recurrentShape(config),
  };
}
