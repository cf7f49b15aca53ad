/** Granite's multipliers: constant factors at four places of the decoder. */
import { z } from "zod";

import type { GraphBuilder } from "../../graph/graph-builder.ts";
import { multiply } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { parseConfigObject, positiveNumber } from "../config-field.ts";

export interface DecoderMultipliers {
  /** Of embeddings, those of images included. */
  readonly embedding: number;
  /** Of products of queries and keys, in place of `1 / sqrt(headDim)`. */
  readonly attention: number;
  /** Of what attention and perceptron add to the residual stream. */
  readonly residual: number;
  /** Of logits. */
  readonly logits: number;
}

/** Names of the fields, and their defaults. */
export interface MultiplierDefaults {
  readonly embedding_multiplier: number;
  readonly attention_multiplier: number;
  readonly residual_multiplier: number;
  readonly logits_scaling: number;
}

/** Throws like `parseDecoderConfig`. */
export function parseMultipliers(config: unknown, path: string, defaults: MultiplierDefaults): DecoderMultipliers {
  const fields = z.looseObject({
    embedding_multiplier: positiveNumber.default(defaults.embedding_multiplier),
    attention_multiplier: positiveNumber.default(defaults.attention_multiplier),
    residual_multiplier: positiveNumber.default(defaults.residual_multiplier),
    logits_scaling: positiveNumber.default(defaults.logits_scaling),
  });
  const parsed = parseConfigObject(fields, config, path);
  return {
    embedding: parsed.embedding_multiplier,
    attention: parsed.attention_multiplier,
    residual: parsed.residual_multiplier,
    logits: 1 / parsed.logits_scaling,
  };
}

/** @param factor Undefined: 1. */
export function scaledBy(graph: GraphBuilder, name: string, value: Value, factor: number | undefined): Value {
  if (factor === undefined || factor === 1) return value;
  return multiply(graph, name, value, graph.constant(`${name}.factor`, value.elementType, [1], [factor]));
}
