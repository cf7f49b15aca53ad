/** Persimmon without pictures. */
import type { ConfiguredModel, ModelDefinition } from "../model-definition.ts";
import { parsePersimmonConfig } from "./config.ts";
import { buildPersimmonGraph } from "./decoder-graph.ts";

export const persimmonDefinition: ModelDefinition = {
  architecture: "PersimmonForCausalLM",
  images: null,
  configure(json): ConfiguredModel {
    const config = parsePersimmonConfig(json, "");
    const { numLayers, numHeads, headDim, hiddenSize, vocabSize } = config;
    return {
      decoder: { numLayers, numKvHeads: numHeads, headDim, hiddenSize, imageWidth: hiddenSize, vocabSize },
      maxPositionEmbeddings: config.maxPositionEmbeddings,
      imageTokenId: null,
      visionEncoder: null,
      buildDecoder(context, maxModelLen) {
        const names = { prefix: "model.", headName: "lm_head" };
        buildPersimmonGraph(context, { config, ...names, acceptsImages: false, maxModelLen });
      },
    };
  },
};
