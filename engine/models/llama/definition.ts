/** The decoder-only models of the Llama family, and others with its decoder graph. */
import type { GraphContext } from "../graph-context.ts";
import type { ConfiguredModel, DecoderDimensions, ModelDefinition } from "../model-definition.ts";
import { findPrefix } from "../weight-source.ts";
import { parseDecoderConfig, type DecoderConfig, type DecoderFamily } from "./config.ts";
import { buildDecoderGraph } from "./decoder-graph.ts";

export const llamaDefinition = ofFamily("LlamaForCausalLM", "llama");
export const mistralDefinition = ofFamily("MistralForCausalLM", "mistral");
export const ministral3Definition = ofFamily("Ministral3ForCausalLM", "ministral3");
export const phi3Definition = ofFamily("Phi3ForCausalLM", "phi3");
export const qwen2Definition = ofFamily("Qwen2ForCausalLM", "qwen2");
export const qwen3Definition = ofFamily("Qwen3ForCausalLM", "qwen3");
export const qwen3MoeDefinition = ofFamily("Qwen3MoeForCausalLM", "qwen3_moe");

function ofFamily(architecture: string, family: DecoderFamily): ModelDefinition {
  return createDecoderDefinition(architecture, (json) => parseDecoderConfig(json, "", family));
}

/**
 * A text model.
 *
 * @param parseConfig Reads config.json.
 */
export function createDecoderDefinition(
  architecture: string,
  parseConfig: (json: unknown) => DecoderConfig,
): ModelDefinition {
  return {
    architecture,
    images: null,
    configure(json): ConfiguredModel {
      const config = parseConfig(json);
      return {
        decoder: decoderDimensions(config),
        maxPositionEmbeddings: config.maxPositionEmbeddings,
        imageTokenId: null,
        visionEncoder: null,
        buildDecoder(context: GraphContext, maxModelLen: number, acceptsImages = false): void {
          // Models that were saved without a head, as many for embeddings are, have no prefix.
          const prefix = findPrefix(context.weights, ["model.", ""], "embed_tokens.weight");
          const names = { prefix, headName: "lm_head" };
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
