/** Configurations of GLM-4.5's decoder: Llama's attention over a part of each head, and experts behind its first layers. */
import { z } from "zod";

import { expertCount, parseConfigObject, refuseOtherThan, unsupportedField } from "../config-field.ts";
import type { ExpertGroups } from "../decoder-graph/router.ts";
import { parseDecoderConfig, type DecoderConfig } from "../llama/config.ts";
import { parseDeepseekExperts } from "../llama/experts.ts";
import { rotatedDimensions, takeRotaryShare } from "../llama/rotary-share.ts";

/** transformers' defaults for missing fields. */
const defaults = {
  vocab_size: 151552,
  hidden_size: 4096,
  intermediate_size: 10944,
  num_hidden_layers: 46,
  num_attention_heads: 96,
  num_key_value_heads: 8,
  max_position_embeddings: 131072,
  rms_norm_eps: 1e-5,
  n_routed_experts: 128,
  n_shared_experts: 1,
  num_experts_per_tok: 8,
  moe_intermediate_size: 1408,
  first_k_dense_replace: 1,
};
const DEFAULT_ROTARY_SHARE = 0.5;

const ownFields = z.looseObject({
  attention_bias: z.boolean().default(false),
  use_qk_norm: z.boolean().default(false),
});

/** Fields that would change the computation, and the values with which they do not. */
const neutralValues = {
  scoring_func: ["sigmoid"],
  topk_method: ["noaux_tc"],
  norm_topk_prob: [true],
  moe_layer_freq: [1],
  mlp_bias: [false],
} as const;

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseGlm4MoeConfig(json: unknown): DecoderConfig {
  const { use_qk_norm: normalisesQueryAndKey } = parseConfigObject(ownFields, json, "");
  return { ...parseGlm4MoeDecoder({ ...(json as object), use_qk_norm: null }, ""), normalisesQueryAndKey };
}

/**
 * The decoder without norms of queries and keys, which vision models have. Throws like `parseGlm4MoeConfig`.
 *
 * @param path Path of the object in config.json: "" or "text_config".
 */
export function parseGlm4MoeDecoder(json: object, path: string): DecoderConfig {
  refuseOtherThan(json, path, neutralValues);
  const { share, rest } = takeRotaryShare({ ...defaults, ...json }, path, DEFAULT_ROTARY_SHARE);
  const { attention_bias: hasQkvBias } = parseConfigObject(ownFields.pick({ attention_bias: true }), json, path);
  const text = parseDecoderConfig({ ...rest, attention_bias: false, num_local_experts: null }, path, "llama");
  const { numLayers, headDim } = text;
  const experts = parseDeepseekExperts(rest, path, { numLayers, normalises: true });
  return {
    ...text,
    hasQkvBias,
    rotaryDim: rotatedDimensions(path, headDim, share),
    experts: { ...experts, groups: parseGroups(rest, path, experts) },
  };
}

const groupFields = z.looseObject({ n_group: expertCount.default(1), topk_group: expertCount.default(1) });

function parseGroups(
  json: object,
  path: string,
  { numExperts, numActive }: { readonly numExperts: number; readonly numActive: number },
): ExpertGroups {
  const { n_group: numGroups, topk_group: numActiveGroups } = parseConfigObject(groupFields, json, path);
  if (numExperts % numGroups !== 0 || numExperts < 2 * numGroups) {
    throw unsupportedField(path, "n_group", numGroups, `${numExperts} experts do not form groups of at least 2`);
  }
  if (numActiveGroups > numGroups || (numActiveGroups * numExperts) / numGroups < numActive) {
    const reason = `expected so many of ${numGroups} groups that they have ${numActive} of ${numExperts} experts`;
    throw unsupportedField(path, "topk_group", numActiveGroups, reason);
  }
  return { numGroups, numActiveGroups };
}
