/** LFM2 and LFM3: text models. */
import type { GraphContext } from "../graph-context.ts";
import type { ConfiguredModel, DecoderDimensions, ModelDefinition } from "../model-definition.ts";
import { convolutionStates, parseLfm2Config, type LfmDecoderConfig } from "./config.ts";
import { buildLfmDecoder } from "./decoder-graph.ts";
import { parseLfm3Config } from "./lfm3-config.ts";

export const lfm2TextDefinition: ModelDefinition = {
  architecture: "Lfm2ForCausalLM",
  images: null,
  configure: (json) => textModel(parseLfm2Config(json, "")),
};

export const lfm3TextDefinition: ModelDefinition = {
  architecture: "Lfm3ForCausalLM",
  images: null,
  configure: (json) => textModel(parseLfm3Config(json, "")),
};

function textModel(config: LfmDecoderConfig): ConfiguredModel {
  return {
    decoder: lfmDimensions(config),
    maxPositionEmbeddings: config.maxPositionEmbeddings,
    imageTokenId: null,
    visionEncoder: null,
    buildDecoder(context: GraphContext, maxModelLen: number, acceptsImages = false): void {
      const names = { prefix: "model.", headName: "lm_head" };
      buildLfmDecoder(context, { config, ...names, acceptsImages, maxModelLen });
    },
  };
}

export function lfmDimensions(config: LfmDecoderConfig): DecoderDimensions {
  const { layerTypes, numKvHeads, headDim, hiddenSize, vocabSize } = config;
  const recurrent = convolutionStates(config);
  return {
    numLayers: layerTypes.filter((type) => type !== "conv").length,
    numKvHeads,
    headDim,
    hiddenSize,
    imageWidth: hiddenSize,
    vocabSize,
    ...(recurrent !== null && { recurrent }),
  };
}
