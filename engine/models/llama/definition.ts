/** The decoder-only models of the Llama family. */
import type { GraphContext } from "../graph-context.ts";
import type { ConfiguredModel, DecoderDimensions, ModelDefinition } from "../model-definition.ts";
import { parseDecoderConfig, type DecoderConfig, type DecoderFamily } from "./config.ts";
import { buildDecoderGraph } from "./decoder-graph.ts";

export const llamaDefinition = createDecoderDefinition("LlamaForCausalLM", "llama");
export const mistralDefinition = createDecoderDefinition("MistralForCausalLM", "mistral");
export const ministral3Definition = createDecoderDefinition("Ministral3ForCausalLM", "ministral3");
export const phi3Definition = createDecoderDefinition("Phi3ForCausalLM", "phi3");
export const qwen2Definition = createDecoderDefinition("Qwen2ForCausalLM", "qwen2");
export const qwen3Definition = createDecoderDefinition("Qwen3ForCausalLM", "qwen3");
export const qwen3MoeDefinition = createDecoderDefinition("Qwen3MoeForCausalLM", "qwen3_moe");

function createDecoderDefinition(architecture: string, family: DecoderFamily): ModelDefinition {
  return {
    architecture,
    images: null,
    configure(json): ConfiguredModel {
      const config = parseDecoderConfig(json, "", family);
      return {
        decoder: decoderDimensions(config),
        maxPositionEmbeddings: config.maxPositionEmbeddings,
        imageTokenId: null,
        visionEncoder: null,
        buildDecoder(context: GraphContext, maxModelLen: number, acceptsImages = false): void {
          const names = { prefix: "model.", headName: "lm_head" };
          buildDecoderGraph(context, { config, ...names, acceptsImages, maxModelLen });
        },
      };
    },
  };
}

export function decoderDimensions(config: DecoderConfig): DecoderDimensions {
  const { numLayers, numKvHeads, headDim, hiddenSize, vocabSize, experts = null } = config;
  const dimensions = { numLayers, numKvHeads, headDim, hiddenSize, imageWidth: hiddenSize, vocabSize };
  return experts === null ? dimensions : { ...dimensions, experts };
}
