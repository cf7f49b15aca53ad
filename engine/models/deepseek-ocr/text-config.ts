/** The decoder of DeepSeek-OCR: Llama's attention, and DeepSeek V2's mixture of experts behind its first layers. */
import { z } from "zod";

import { parseConfigObject, refuseOtherThan, unsupportedField } from "../config-field.ts";
import { parseDecoderConfig, type DecoderConfig } from "../llama/config.ts";
import { parseDeepseekExperts, type DecoderExperts } from "../llama/experts.ts";

const typeFields = z.looseObject({ mlp_layer_types: z.array(z.enum(["dense", "sparse"])).nullish() });

const expertDefaults = { n_routed_experts: 64, moe_intermediate_size: 1407 };

/** Sizes that transformers assumes for fields that are missing. */
const defaults = { vocab_size: 102400, hidden_size: 4096, intermediate_size: 11008, max_position_embeddings: 2048 };

/** Fields that would change the computation, and the values with which they do not. */
const neutralValues = {
  use_mla: [false],
  kv_lora_rank: [],
  q_lora_rank: [],
  scoring_func: ["softmax"],
  norm_topk_prob: [false],
  topk_method: ["greedy"],
  n_group: [1],
  topk_group: [1],
  moe_layer_freq: [1],
  mlp_bias: [false],
} as const;

/**
 * @param numShared Shared experts of a file that does not say.
 * @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field.
 */
export function parseOcrTextConfig(json: object, path: string, numShared: number): DecoderConfig {
  refuseOtherThan(json, path, neutralValues);
  const text = parseDecoderConfig({ ...defaults, ...json }, path, "llama");
  if (text.headDim * text.numHeads !== text.hiddenSize) {
    throw unsupportedField(path, "head_dim", text.headDim, `${text.numHeads} heads share ${text.hiddenSize} features`);
  }
  return { ...text, experts: parseExperts({ n_shared_experts: numShared, ...json }, path, text.numLayers) };
}

function parseExperts(json: object, path: string, numLayers: number): DecoderExperts {
  const { mlp_layer_types: types } = parseConfigObject(typeFields, json, path);
  const experts = parseDeepseekExperts({ ...expertDefaults, ...json }, path, { numLayers, normalises: false });
  if (types == null) return experts;
  if (types.length !== numLayers) {
    throw unsupportedField(path, "mlp_layer_types", types, `there are ${numLayers} layers`);
  }
  return { ...experts, layers: types.map((type) => type === "sparse") };
}
