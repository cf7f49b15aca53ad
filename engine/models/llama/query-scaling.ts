/**
 * Ministral 3's temperature of attention: each query is multiplied by `1 + beta * ln(1 + floor(position / interval))`.
 * The formula is that of transformers' `get_llama_4_attn_scale`, in single precision as there.
 */
import { z } from "zod";

import { divide, gatherRows, multiply } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { parseConfigObject, positionCount, unsupportedField } from "../config-field.ts";
import type { DecoderInputs } from "../decoder-graph/decoder-inputs.ts";
import type { GraphContext } from "../graph-context.ts";
import { separate, type JointProjection } from "../linear.ts";

export interface QueryScaling {
  readonly beta: number;
  /** Number of positions with the same factor: the length of sequences before the context was extended. */
  readonly interval: number;
}

const ropeHolder = z.looseObject({
  rope_parameters: z.looseObject({}).nullish(),
  rope_scaling: z.looseObject({}).nullish(),
});
const scalingFields = z.looseObject({
  llama_4_scaling_beta: z.number().nonnegative().nullish(),
  original_max_position_embeddings: positionCount.nullish(),
});

/** transformers' rotary embedding of Ministral 3 for a configuration without one. */
const defaultRope = {
  rope_type: "yarn",
  rope_theta: 1_000_000,
  factor: 16,
  original_max_position_embeddings: 16_384,
  beta_fast: 32,
  beta_slow: 1,
  mscale: 1,
  mscale_all_dim: 1,
  llama_4_scaling_beta: 0.1,
};

/**
 * The configuration of a decoder of Ministral 3 with its rotary embedding, given or by default. Throws like
 * `parseQueryScaling`.
 */
export function withDefaultRope(config: unknown, path: string): unknown {
  const { rope_parameters: parameters, rope_scaling: scaling } = parseConfigObject(ropeHolder, config, path);
  return parameters == null && scaling == null ? { ...(config as object), rope_parameters: defaultRope } : config;
}

/**
 * @param config With its rotary embedding, whose fields these are. Null without a factor.
 * @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field.
 */
export function parseQueryScaling(config: unknown, path: string): QueryScaling | null {
  const holder = parseConfigObject(ropeHolder, config, path);
  const field = holder.rope_scaling ? "rope_scaling" : "rope_parameters";
  const fieldPath = path === "" ? field : `${path}.${field}`;
  const fields = parseConfigObject(scalingFields, holder[field] ?? {}, fieldPath);
  const { llama_4_scaling_beta: beta = null, original_max_position_embeddings: interval = null } = fields;
  if (beta === null || beta === 0) return null;
  if (interval === null) {
    throw unsupportedField(fieldPath, "llama_4_scaling_beta", beta, "it needs original_max_position_embeddings");
  }
  return { beta, interval };
}

/**
 * The factor of each token's query, [N, 1]; null if it is 1 for every token, as in sequences of at most `interval`
 * tokens.
 */
export function queryFactors(
  { graph, precision }: GraphContext,
  inputs: DecoderInputs,
  { beta, interval }: QueryScaling,
  maxModelLen: number,
): Value | null {
  const numFactors = Math.ceil(maxModelLen / interval);
  if (numFactors <= 1) return null;
  const factors = new Float32Array(numFactors).map((_, step) => 1 + beta * Math.fround(Math.log(1 + step)));
  const table = graph.constant("query_factors.by_step", precision.activations, [numFactors, 1], factors);
  const length = graph.constant("query_factors.interval", "int64", [], [interval]);
  const step = divide(graph, "query_factors.step", inputs.positions(), length);
  return gatherRows(graph, "query_factors", table, step);
}

/**
 * The projections with each token's query multiplied by its factor. Rotation keeps factors, so that they may come before
 * it.
 *
 * @param widths Features of a token's query, key and value.
 */
export function scaleQueries(
  { graph }: GraphContext,
  name: string,
  projected: JointProjection,
  widths: readonly [query: number, key: number, value: number],
  factors: Value,
): JointProjection {
  const [query, key, value] = separate(graph, `${name}.qkv`, projected, widths);
  return { kind: "separate", values: [multiply(graph, `${name}.query.scaled`, query, factors), key, value] };
}
