/** When an output counts as a loop, in the terms of vLLM's `RepetitionDetectionParams`. */
import { EngineError } from "./errors.ts";

/** The output ends when its tail is one pattern of tokens, at least `minCount` times in a row. */
export interface RepetitionDetection {
  /** Most tokens of the pattern; 0 turns the detection off. */
  readonly maxPatternSize: number;
  /** Fewest tokens of the pattern; 0 means 1. */
  readonly minPatternSize: number;
  /** At least 2. */
  readonly minCount: number;
}

export const repetitionLimits = {
  /** Pattern sizes, as in vLLM by default. Each costs one comparison per token. */
  patternSize: 2048,
  /** Times. A loop of one token is found long before. */
  count: 1024,
} as const;

/** @throws EngineError `invalid_argument`, whose `parameter` names the field. */
export function checkRepetitionDetection(detection: RepetitionDetection): void {
  const { maxPatternSize, minPatternSize, minCount } = detection;
  requireInteger("maxPatternSize", maxPatternSize, 0, repetitionLimits.patternSize);
  requireInteger("minPatternSize", minPatternSize, 0, repetitionLimits.patternSize);
  if (minPatternSize > maxPatternSize) {
    refuse("minPatternSize", `must be at most maxPatternSize=${maxPatternSize}, got ${minPatternSize}`);
  }
  if (maxPatternSize > 0) requireInteger("minCount", minCount, 2, repetitionLimits.count);
}

function requireInteger(field: keyof RepetitionDetection, value: number, minimum: number, maximum: number): void {
  if (Number.isInteger(value) && value >= minimum && value <= maximum) return;
  refuse(field, `must be a whole number from ${minimum} to ${maximum}, got ${value}`);
}

function refuse(field: keyof RepetitionDetection, problem: string): never {
  const parameter = `samplingParams.repetitionDetection.${field}`;
  throw new EngineError("invalid_argument", `repetitionDetection.${field} ${problem}.`, { parameter });
}
