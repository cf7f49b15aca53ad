/** LFM2: text models. */
import type { GraphContext } from "../graph-context.ts";
import type { ConfiguredModel, DecoderDimensions, ModelDefinition } from "../model-definition.ts";
import { convolutionStates, parseLfm2Config, type Lfm2Config } from "./config.ts";
import { buildLfm2Decoder } from "./decoder-graph.ts";

export const lfm2TextDefinition: ModelDefinition = {
  architecture: "Lfm2ForCausalLM",
  images: null,
  configure(json): ConfiguredModel {
    const config = parseLfm2Config(json, "");
    return {
      decoder: lfm2Dimensions(config),
      maxPositionEmbeddings: config.maxPositionEmbeddings,
      imageTokenId: null,
      visionEncoder: null,
      buildDecoder(context: GraphContext, maxModelLen: number, acceptsImages = false): void {
        const names = { prefix: "model.", headName: "lm_head" };
        buildLfm2Decoder(context, { config, ...names, acceptsImages, maxModelLen });
      },
    };
  },
};

export function lfm2Dimensions(config: Lfm2Config): DecoderDimensions {
  const { layerTypes, numKvHeads, headDim, hiddenSize, vocabSize } = config;
  const recurrent = convolutionStates(config);
  return {
    numLayers: layerTypes.filter((type) => type === "full_attention").length,
    numKvHeads,
    headDim,
    hiddenSize,
    imageWidth: hiddenSize,
    vocabSize,
    ...(recurrent !== null && { recurrent }),
  };
}
