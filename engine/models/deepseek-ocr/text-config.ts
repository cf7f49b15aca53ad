/** The decoder of DeepSeek-OCR: Llama's attention, and DeepSeek V2's mixture of experts behind its first layers. */
import { z } from "zod";

import {
  expertCount,
  layerCount,
  parseConfigObject,
  refuseOtherThan,
  unsupportedField,
  width,
} from "../config-field.ts";
import { parseDecoderConfig, type DecoderConfig } from "../llama/config.ts";
import type { DecoderExperts } from "../llama/experts.ts";

const expertFields = z.looseObject({
  n_routed_experts: expertCount.default(64),
  n_shared_experts: z.int().nonnegative().max(1024).nullish(),
  num_experts_per_tok: expertCount,
  moe_intermediate_size: width.default(1407),
  routed_scaling_factor: z.number().positive().default(1),
  mlp_layer_types: z.array(z.enum(["dense", "sparse"])).nullish(),
  first_k_dense_replace: z.int().nonnegative().default(0),
  num_hidden_layers: layerCount.default(32),
});

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
  const fields = parseConfigObject(expertFields, json, path);
  const { n_routed_experts: numExperts, num_experts_per_tok: numActive, mlp_layer_types: types } = fields;
  if (numActive > numExperts) {
    throw unsupportedField(path, "num_experts_per_tok", numActive, `there are ${numExperts} experts`);
  }
  if (types != null && types.length !== numLayers) {
    throw unsupportedField(path, "mlp_layer_types", types, `there are ${numLayers} layers`);
  }
  return {
    numExperts,
    numActive,
    intermediateSize: fields.moe_intermediate_size,
    normalises: false,
    factor: fields.routed_scaling_factor,
    sharedIntermediateSize: fields.moe_intermediate_size * (fields.n_shared_experts ?? 0),
    layers: Array.from({ length: numLayers }, (_, layer) =>
      types == null ? layer >= fields.first_k_dense_replace : types[layer] === "sparse",
    ),
  };
}
