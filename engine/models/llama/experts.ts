/** Fields of decoders in whose layers a router chooses among experts. */
import { z } from "zod";

import { count, expertCount, parseConfigObject, unsupportedField, width } from "../config-field.ts";
import type { ExpertsShape } from "../decoder-graph/experts.ts";
import type { ExpertGroups, RouterOptions } from "../decoder-graph/router.ts";

export interface DecoderExperts extends ExpertsShape, Pick<RouterOptions, "normalises" | "factor"> {
  /** Whether each layer has experts. All others have one perceptron. */
  readonly layers: readonly boolean[];
  /** Width of the perceptron that computes every token beside its experts. Default 0: there is none. */
  readonly sharedIntermediateSize?: number;
  /** For a router with a correction (`RouterCorrection`): its groups. Its bias is in the checkpoint. */
  readonly groups?: ExpertGroups;
}

const sizeFields = z.looseObject({
  num_experts: expertCount.nullish(),
  num_local_experts: expertCount.nullish(),
  num_experts_per_tok: expertCount.nullish(),
  moe_intermediate_size: width.nullish(),
});

/** transformers' defaults for missing fields. The number of experts, which has two names, must be given. */
export type ExpertDefaults = Pick<ExpertsShape, "numActive" | "intermediateSize">;

/** Throws like `parseDecoderConfig`. */
export function parseExpertsShape(config: unknown, path: string, defaults: ExpertDefaults): ExpertsShape {
  const fields = parseConfigObject(sizeFields, config, path);
  const { num_experts: named, num_local_experts: other } = fields;
  if (named != null && other != null && named !== other) {
    throw unsupportedField(path, "num_local_experts", other, `num_experts is ${named}`);
  }
  const numExperts = named ?? other;
  if (numExperts == null) throw unsupportedField(path, "num_experts", null, "it is required");
  const numActive = fields.num_experts_per_tok ?? defaults.numActive;
  if (numActive > numExperts) {
    throw unsupportedField(path, "num_experts_per_tok", numActive, `there are ${numExperts} experts`);
  }
  return { numExperts, numActive, intermediateSize: fields.moe_intermediate_size ?? defaults.intermediateSize };
}

const placeFields = z.looseObject({
  decoder_sparse_step: count.default(1),
  mlp_only_layers: z.array(z.int().nonnegative()).nullish(),
  norm_topk_prob: z.boolean().default(false),
});

/** The experts of Qwen3-MoE. Throws like `parseDecoderConfig`. */
export function parseQwenExperts(
  config: unknown,
  path: string,
  { numLayers, ...defaults }: ExpertDefaults & { readonly numLayers: number },
): DecoderExperts {
  const fields = parseConfigObject(placeFields, config, path);
  const { decoder_sparse_step: step, mlp_only_layers: without } = fields;
  return {
    ...parseExpertsShape(config, path, defaults),
    normalises: fields.norm_topk_prob,
    layers: Array.from(
      { length: numLayers },
      (_, layer) => (layer + 1) % step === 0 && !(without ?? []).includes(layer),
    ),
  };
}

const deepseekFields = z.looseObject({
  n_routed_experts: expertCount,
  num_local_experts: expertCount.nullish(),
  n_shared_experts: z.int().nonnegative().max(1024).nullish(),
  num_experts_per_tok: expertCount,
  moe_intermediate_size: width,
  routed_scaling_factor: z.number().positive().default(1),
  first_k_dense_replace: z.int().nonnegative().default(0),
});

/**
 * The experts of decoders like DeepSeek V2's, behind the first layers: the fields that these decoders share. Throws like
 * `parseDecoderConfig`.
 */
export function parseDeepseekExperts(
  config: unknown,
  path: string,
  { numLayers, normalises }: { readonly numLayers: number; readonly normalises: boolean },
): DecoderExperts {
  const fields = parseConfigObject(deepseekFields, config, path);
  const { n_routed_experts: numExperts, num_local_experts: other, num_experts_per_tok: numActive } = fields;
  if (other != null && other !== numExperts) {
    throw unsupportedField(path, "num_local_experts", other, `n_routed_experts is ${numExperts}`);
  }
  if (numActive > numExperts) {
    throw unsupportedField(path, "num_experts_per_tok", numActive, `there are ${numExperts} experts`);
  }
  return {
    numExperts,
    numActive,
    intermediateSize: fields.moe_intermediate_size,
    normalises,
    factor: fields.routed_scaling_factor,
    sharedIntermediateSize: fields.moe_intermediate_size * (fields.n_shared_experts ?? 0),
    layers: Array.from({ length: numLayers }, (_, layer) => layer >= fields.first_k_dense_replace),
  };
}
