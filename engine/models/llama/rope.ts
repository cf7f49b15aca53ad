/**
 * Rotary position embeddings of the Llama family: from the configuration to the graph's cosine and sine tables. The
 * formulas are those of transformers' `modeling_rope_utils.py`, in single precision as there.
 */
import { z } from "zod";

import { EngineError } from "../../contract/errors.ts";
import { MAX_POSITIONS, parseConfigObject, positiveNumber, unsupportedField } from "../config-field.ts";

export type RopeScaling =
  | { readonly kind: "none" }
  | { readonly kind: "linear"; readonly factor: number }
  /** Only the first pairs of a head rotate, with the frequencies that they have in a head that rotates as a whole. */
  | { readonly kind: "proportional"; readonly factor: number; readonly rotatedShare: number }
  | {
      readonly kind: "llama3";
      readonly factor: number;
      readonly lowFrequencyFactor: number;
      readonly highFrequencyFactor: number;
      readonly originalMaxPositionEmbeddings: number;
    }
  | {
      readonly kind: "yarn";
      readonly factor: number;
      /** Factor of cosines and sines. */
      readonly attentionFactor: number;
      readonly betaFast: number;
      readonly betaSlow: number;
      readonly truncate: boolean;
      readonly originalMaxPositionEmbeddings: number;
    }
  /** LongRoPE (arXiv:2402.13753): each frequency is divided by a number of its own. */
  | {
      readonly kind: "longrope";
      /** For sequences of at most `originalMaxPositionEmbeddings` tokens, and for longer ones. */
      readonly shortFactors: readonly number[];
      readonly longFactors: readonly number[];
      /** Factor of cosines and sines. */
      readonly attentionFactor: number;
      readonly originalMaxPositionEmbeddings: number;
    };

export interface RopeConfig {
  /** Base wavelength. */
  readonly theta: number;
  readonly scaling: RopeScaling;
  /** Tokens of the longest sequence of YaRN that states the length before it; otherwise that of the model. */
  readonly maxPositions?: number;
}

const ropeFields = z.looseObject({
  rope_type: z.string().optional(),
  type: z.string().optional(),
  rope_theta: positiveNumber.nullish(),
  factor: positiveNumber.nullish(),
  low_freq_factor: positiveNumber.nullish(),
  high_freq_factor: positiveNumber.nullish(),
  original_max_position_embeddings: positiveNumber.nullish(),
  attention_factor: positiveNumber.nullish(),
  beta_fast: positiveNumber.nullish(),
  beta_slow: positiveNumber.nullish(),
  mscale: z.number().nullish(),
  mscale_all_dim: z.number().nullish(),
  truncate: z.boolean().nullish(),
  partial_rotary_factor: z.number().nullish(),
  short_factor: z.unknown().optional(),
  long_factor: z.unknown().optional(),
});

const ropeHolder = z.looseObject({
  rope_theta: positiveNumber.nullish(),
  rope_scaling: z.looseObject({}).nullish(),
  rope_parameters: z.looseObject({}).nullish(),
  original_max_position_embeddings: positiveNumber.nullish(),
});

const longRopeFactors = z.array(positiveNumber);

export interface RopeDefaults {
  readonly defaultTheta: number;
  readonly maxPositionEmbeddings: number;
  /** The caller handles `partial_rotary_factor`; otherwise values other than 1 are rejected. */
  readonly isPartial?: boolean;
  /** Dimensions of a head that are rotated. If left out, LongRoPE is rejected. */
  readonly longRopeDim?: number;
}

/**
 * Reads both spellings: `rope_parameters` (transformers 5), or `rope_theta` with `rope_scaling` (transformers 4).
 *
 * @throws EngineError `unsupported_model` for a kind of scaling that is not in `RopeScaling`.
 */
export function parseRopeConfig(
  config: unknown,
  path: string,
  { defaultTheta, maxPositionEmbeddings, isPartial = false, longRopeDim }: RopeDefaults,
): RopeConfig {
  const holder = parseConfigObject(ropeHolder, config, path);
  const field = holder.rope_scaling ? "rope_scaling" : "rope_parameters";
  const fieldPath = path === "" ? field : `${path}.${field}`;
  const fields = parseConfigObject(ropeFields, holder[field] ?? {}, fieldPath);
  const kind = fields.rope_type ?? fields.type ?? "default";
  if (!isPartial && kind !== "proportional" && (fields.partial_rotary_factor ?? 1) !== 1) {
    throw unsupportedField(fieldPath, "partial_rotary_factor", fields.partial_rotary_factor);
  }
  const theta = fields.rope_theta ?? holder.rope_theta ?? defaultTheta;
  const statedOriginal = holder.original_max_position_embeddings ?? fields.original_max_position_embeddings;
  const original = statedOriginal ?? maxPositionEmbeddings;

  const required = (name: "factor" | "low_freq_factor" | "high_freq_factor"): number => {
    const value = fields[name];
    if (value == null) throw unsupportedField(fieldPath, "rope_type", kind, `it lacks ${name}`);
    return value;
  };

  switch (kind) {
    case "default":
    // Stretches the base only beyond max_position_embeddings, which is the longest sequence served.
    case "dynamic":
      return { theta, scaling: { kind: "none" } };
    case "linear":
      return { theta, scaling: { kind: "linear", factor: required("factor") } };
    case "proportional": {
      if (isPartial)
        throw unsupportedField(fieldPath, "rope_type", kind, "this model rotates a part of its heads itself");
      const rotatedShare = fields.partial_rotary_factor ?? 1;
      if (rotatedShare < 0 || rotatedShare > 1) {
        throw unsupportedField(fieldPath, "partial_rotary_factor", rotatedShare, "expected a share from 0 to 1");
      }
      return { theta, scaling: { kind: "proportional", factor: fields.factor ?? 1, rotatedShare } };
    }
    case "llama3":
      return {
        theta,
        scaling: {
          kind: "llama3",
          factor: required("factor"),
          lowFrequencyFactor: required("low_freq_factor"),
          highFrequencyFactor: required("high_freq_factor"),
          originalMaxPositionEmbeddings: original,
        },
      };
    case "yarn": {
      const factor = fields.factor ?? maxPositionEmbeddings / original;
      return {
        theta,
        scaling: {
          kind: "yarn",
          factor,
          attentionFactor: fields.attention_factor ?? yarnAttentionFactor(factor, fields.mscale, fields.mscale_all_dim),
          betaFast: fields.beta_fast ?? 32,
          betaSlow: fields.beta_slow ?? 1,
          truncate: fields.truncate ?? true,
          originalMaxPositionEmbeddings: original,
        },
        ...(statedOriginal != null && { maxPositions: Math.min(Math.floor(original * factor), MAX_POSITIONS) }),
      };
    }
    case "longrope": {
      if (longRopeDim === undefined) throw unsupportedField(fieldPath, "rope_type", kind, unsupportedKind);
      if (statedOriginal == null) {
        throw unsupportedField(fieldPath, "rope_type", kind, "it lacks original_max_position_embeddings");
      }
      const factor = fields.factor ?? maxPositionEmbeddings / original;
      const factorsOf = (name: "short_factor" | "long_factor"): readonly number[] => {
        const factors = longRopeFactors.safeParse(fields[name]);
        if (factors.success && factors.data.length === longRopeDim / 2) return factors.data;
        throw unsupportedField(fieldPath, name, fields[name], `expected ${longRopeDim / 2} positive numbers`);
      };
      return {
        theta,
        scaling: {
          kind: "longrope",
          shortFactors: factorsOf("short_factor"),
          longFactors: factorsOf("long_factor"),
          attentionFactor:
            fields.attention_factor ?? (factor <= 1 ? 1 : Math.sqrt(1 + Math.log(factor) / Math.log(original))),
          originalMaxPositionEmbeddings: original,
        },
      };
    }
    default:
      throw unsupportedField(fieldPath, "rope_type", kind, unsupportedKind);
  }
}

/**
 * Tokens of the longest sequence: `max_position_embeddings`, or the length that YaRN reaches from its original one. Pages
 * of models on the hub describe YaRN without a change of `max_position_embeddings`; vLLM multiplies likewise.
 */
export function longestSequence(rope: RopeConfig, maxPositionEmbeddings: number): number {
  return Math.max(rope.maxPositions ?? 0, maxPositionEmbeddings);
}

const unsupportedKind = "supported are default, linear, dynamic, proportional, llama3, yarn, and longrope for Phi";

function yarnAttentionFactor(factor: number, mscale?: number | null, mscaleAllDim?: number | null): number {
  const scaled = (multiplier: number) => (factor <= 1 ? 1 : 0.1 * multiplier * Math.log(factor) + 1);
  return mscale && mscaleAllDim ? scaled(mscale) / scaled(mscaleAllDim) : scaled(1);
}

export interface RopeTables {
  /** Row-major [numPositions, headDim / 2]. */
  readonly cos: Float32Array;
  readonly sin: Float32Array;
}

/** Limit for both tables: they are inside the ONNX file, which can have 2 GiB. */
const MAX_TABLE_BYTES = 1024 ** 3;

/** Throws EngineError `invalid_configuration` for too many positions. */
export function ropeTables(config: RopeConfig, headDim: number, numPositions: number): RopeTables {
  const bytesPerPosition = headDim * Float32Array.BYTES_PER_ELEMENT;
  if (numPositions * bytesPerPosition > MAX_TABLE_BYTES) {
    const most = Math.floor(MAX_TABLE_BYTES / bytesPerPosition);
    throw new EngineError(
      "invalid_configuration",
      `The rotary tables for a model length of ${numPositions} tokens would take ${numPositions * bytesPerPosition} bytes; ` +
        `the limit is ${MAX_TABLE_BYTES}, which is ${most} tokens.`,
      { setting: "maxModelLen" },
    );
  }
  const frequencies = inverseFrequencies(config, headDim, numPositions);
  const amplitude = "attentionFactor" in config.scaling ? config.scaling.attentionFactor : 1;
  const half = frequencies.length;
  const cos = new Float32Array(numPositions * half);
  const sin = new Float32Array(numPositions * half);
  for (let position = 0; position < numPositions; position++) {
    for (let index = 0; index < half; index++) {
      const angle = Math.fround(position * frequencies[index]!);
      cos[position * half + index] = Math.cos(angle) * amplitude;
      sin[position * half + index] = Math.sin(angle) * amplitude;
    }
  }
  return { cos, sin };
}

/**
 * Radians per position of each pair of dimensions, [headDim / 2].
 *
 * @param numPositions Tokens of the longest sequence. LongRoPE has other frequencies if they exceed its original length.
 * Which of them a sequence has must not change while keys are cached, nor may sequences that share keys differ, so the
 * longest one decides for all, as in vLLM. transformers decides by the length that a sequence has reached, and computes
 * all keys again when it exceeds the original length.
 */
export function inverseFrequencies(
  { theta, scaling }: RopeConfig,
  headDim: number,
  numPositions: number,
): Float32Array {
  const frequencies = new Float32Array(headDim / 2).map(
    (_, index) => 1 / Math.fround(theta ** ((2 * index) / headDim)),
  );
  switch (scaling.kind) {
    case "none":
      return frequencies;
    case "linear":
      return frequencies.map((frequency) => frequency / scaling.factor);
    case "longrope": {
      const { shortFactors, longFactors, originalMaxPositionEmbeddings } = scaling;
      const factors = numPositions > originalMaxPositionEmbeddings ? longFactors : shortFactors;
      return frequencies.map((_, index) => {
        const period = Math.fround(theta ** ((2 * index) / headDim));
        return 1 / Math.fround(Math.fround(factors[index]!) * period);
      });
    }
    case "proportional": {
      const numRotated = Math.floor((scaling.rotatedShare * headDim) / 2);
      return frequencies.map((frequency, index) => (index < numRotated ? frequency / scaling.factor : 0));
    }
    case "llama3": {
      const { factor, lowFrequencyFactor, highFrequencyFactor, originalMaxPositionEmbeddings } = scaling;
      return frequencies.map((frequency) => {
        const wavelength = (2 * Math.PI) / frequency;
        if (wavelength < originalMaxPositionEmbeddings / highFrequencyFactor) return frequency;
        if (wavelength > originalMaxPositionEmbeddings / lowFrequencyFactor) return frequency / factor;
        const smooth =
          (originalMaxPositionEmbeddings / wavelength - lowFrequencyFactor) /
          (highFrequencyFactor - lowFrequencyFactor);
        return ((1 - smooth) * frequency) / factor + smooth * frequency;
      });
    }
    case "yarn": {
      const { factor, betaFast, betaSlow, truncate, originalMaxPositionEmbeddings } = scaling;
      const dimensionOf = (rotations: number) =>
        (headDim * Math.log(originalMaxPositionEmbeddings / (rotations * 2 * Math.PI))) / (2 * Math.log(theta));
      const bounds = [dimensionOf(betaFast), dimensionOf(betaSlow)];
      const low = Math.max(truncate ? Math.floor(bounds[0]!) : bounds[0]!, 0);
      const upper = Math.min(truncate ? Math.ceil(bounds[1]!) : bounds[1]!, headDim - 1);
      // An empty ramp becomes a steep one.
      const high = upper === low ? upper + 0.001 : upper;
      return frequencies.map((frequency, index) => {
        const interpolated = Math.min(Math.max((index - low) / (high - low), 0), 1);
        return (frequency / factor) * interpolated + frequency * (1 - interpolated);
      });
    }
  }
  return scaling satisfies never;
}
