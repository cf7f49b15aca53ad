/** Makes a request's parameters safe to show to foreign code. */
import type { SamplingParams } from "../../contract/sampling-params.ts";

/**
 * Freezes and returns them, with their lists and extra arguments, which requests may share: defaults are the same
 * objects for all. The inside of a structured output is not frozen, because each request has its own.
 */
export function freezeSamplingParams(params: SamplingParams): SamplingParams {
  // They may have been frozen for an earlier processor.
  if (Object.isFrozen(params)) return params;
  for (const value of [...Object.values(params), ...Object.values(params.extraArgs)]) Object.freeze(value);
  return Object.freeze(params);
}
