/** The error for a rejected structured output. */
import { EngineError } from "../contract/errors.ts";

/** Throws EngineError `invalid_argument`. `problem` is a sentence without its full stop. */
export function refuseStructuredOutput(problem: string, cause?: unknown): never {
  throw new EngineError("invalid_argument", `${problem}.`, {
    ...(cause !== undefined && { cause }),
    parameter: "samplingParams.structuredOutput",
  });
}
