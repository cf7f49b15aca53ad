/** Parameters of a request as code that is not ours may see them. */
import type { SamplingParams } from "../../contract/sampling-params.ts";

/**
 * Freezes and returns them, with their lists and extra arguments, which requests may share: defaults are the same objects
 * for all. What is inside of a structured output is left: each request has its own.
 */
export function freezeSamplingParams(params: SamplingParams): SamplingParams {
  // Whoever was given them before has them frozen already.
  if (Object.isFrozen(params)) return params;
  for (const value of [...Object.values(params), ...Object.values(params.extraArgs)]) Object.freeze(value);
  return Object.freeze(params);
}
