/** Bounds on counts in JSON Schemas. */
import type { JsonObject } from "./json-schema.ts";
import { refuseStructuredOutput } from "./refusal.ts";

export interface CountBounds {
  readonly min: number;
  /** Infinity for no bound. */
  readonly max: number;
}

/** Throws EngineError `invalid_argument` for bounds that are not counts, or that exclude every count. */
export function countBounds(schema: JsonObject, minKeyword: string, maxKeyword: string, path: string): CountBounds {
  const min = readCount(schema[minKeyword] ?? 0, `${path}.${minKeyword}`);
  const max = schema[maxKeyword] === undefined ? Infinity : readCount(schema[maxKeyword], `${path}.${maxKeyword}`);
  if (min > max) refuseStructuredOutput(`${path}.${minKeyword} is ${min}, which is more than ${maxKeyword}, ${max}`);
  return { min, max };
}

function readCount(bound: unknown, path: string): number {
  if (Number.isSafeInteger(bound) && (bound as number) >= 0) return bound as number;
  return refuseStructuredOutput(`${path} must be a whole number of at least 0`);
}
