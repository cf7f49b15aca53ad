/** Configuration of the Persimmon decoder. */
import { z } from "zod";

import { parseActivation, type ActivationName } from "../activation.ts";
import {
  headCount,
  layerCount,
  normEpsilon,
  parseConfigObject,
  positionCount,
  positiveNumber,
  refuseOtherThan,
  requireHeadSize,
  unsupportedField,
  vocabularySize,
  width,
} from "../config-field.ts";
import { parseRopeConfig, type RopeConfig } from "../llama/rope.ts";

export interface PersimmonConfig {
  readonly vocabSize: number;
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly numLayers: number;
  readonly numHeads: number;
  readonly headDim: number;
  /** Number of leading dimensions of each head that are rotated; the rest is unchanged. */
  readonly rotaryDim: number;
  readonly maxPositionEmbeddings: number;
  readonly layerNormEpsilon: number;
  readonly activation: ActivationName;
  /** Whether every head's query and key have their own layer norm. */
  readonly normalisesQueryAndKey: boolean;
  readonly tieWordEmbeddings: boolean;
  readonly rope: RopeConfig;
}

const persimmonFields = z.looseObject({
  vocab_size: vocabularySize.default(262144),
  hidden_size: width.default(4096),
  intermediate_size: width.default(16384),
  num_hidden_layers: layerCount.default(36),
  num_attention_heads: headCount.default(64),
  max_position_embeddings: positionCount.default(16384),
  hidden_act: z.string().default("relu2"),
  layer_norm_eps: normEpsilon.default(1e-5),
  qk_layernorm: z.boolean().default(true),
  tie_word_embeddings: z.boolean().default(false),
  partial_rotary_factor: positiveNumber.max(1).nullish(),
  rope_parameters: z.looseObject({ partial_rotary_factor: positiveNumber.max(1).nullish() }).nullish(),
});

const DEFAULT_THETA = 10000;
const DEFAULT_ROTARY_FACTOR = 0.5;

/** Fields of related models that would change the computation, and the values with which they do not. */
const neutralValues = { head_dim: [], num_key_value_heads: [], sliding_window: [], quantization_config: [] } as const;

/**
 * @param path Path of the object in config.json: "" or "text_config".
 * @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field.
 */
export function parsePersimmonConfig(config: unknown, path: string): PersimmonConfig {
  const fields = parseConfigObject(persimmonFields, config, path);
  refuseOtherThan(config, path, neutralValues);
  const numHeads = fields.num_attention_heads;
  const headDim = fields.hidden_size / numHeads;
  if (!Number.isInteger(headDim)) {
    throw unsupportedField(
      path,
      "num_attention_heads",
      numHeads,
      `hidden_size ${fields.hidden_size} is not a multiple of it`,
    );
  }
  requireHeadSize(path, headDim);
  const rotaryFactor =
    fields.rope_parameters?.partial_rotary_factor ?? fields.partial_rotary_factor ?? DEFAULT_ROTARY_FACTOR;
  const rotaryDim = Math.trunc(headDim * rotaryFactor);
  if (rotaryDim === 0 || rotaryDim % 8 !== 0) {
    const reason = `${rotaryDim} of ${headDim} dimensions is not a multiple of 8`;
    throw unsupportedField(path, "partial_rotary_factor", rotaryFactor, reason);
  }
  const maxPositionEmbeddings = fields.max_position_embeddings;
  return {
    vocabSize: fields.vocab_size,
    hiddenSize: fields.hidden_size,
    intermediateSize: fields.intermediate_size,
    numLayers: fields.num_hidden_layers,
    numHeads,
    headDim,
    rotaryDim,
    maxPositionEmbeddings,
    layerNormEpsilon: fields.layer_norm_eps,
    activation: parseActivation(path, "hidden_act", fields.hidden_act),
    normalisesQueryAndKey: fields.qk_layernorm,
    tieWordEmbeddings: fields.tie_word_embeddings,
    rope: parseRopeConfig(config, path, { defaultTheta: DEFAULT_THETA, maxPositionEmbeddings, isPartial: true }),
  };
}
