/** What a request, or a deployment, changes of an image processor's options. */
import { EngineError } from "../contract/errors.ts";
import type { CanonicalValue } from "../multimodal/hasher.ts";
import type { MultiModalProcessor, ProcessorOptions } from "../multimodal/multimodal-processor.ts";

/**
 * The checkpoint's options with the request's over them; those that no request may set are dropped, as vLLM does. The
 * very object of the processor where nothing is changed. Throws EngineError `invalid_argument` for what is not JSON.
 */
export function requestOptions(
  { options, requestOptions }: Pick<MultiModalProcessor, "options" | "requestOptions">,
  changes: Readonly<Record<string, unknown>> = {},
): ProcessorOptions {
  const known = Object.entries(changes).filter(([name]) => requestOptions.has(name));
  if (known.length === 0) return options;
  const changed = known.map(([name, value]): [string, CanonicalValue] => {
    if (isJson(value, MAX_DEPTH)) return [name, value];
    throw new EngineError("invalid_argument", `The processor option ${name} is no JSON value.`, {
      parameter: "mmProcessorOptions",
    });
  });
  return { ...options, ...Object.fromEntries(changed) };
}

/**
 * The checkpoint's options with a deployment's over them. Throws EngineError `invalid_configuration` for a name that
 * the processor does not let be changed: unlike a request's, which are written for many models, it can only be a slip.
 */
export function deploymentOptions(
  processor: Pick<MultiModalProcessor, "options" | "requestOptions">,
  changes: Readonly<Record<string, unknown>>,
): ProcessorOptions {
  const unknown = Object.keys(changes).filter((name) => !processor.requestOptions.has(name));
  if (unknown.length > 0) {
    const known = [...processor.requestOptions].join(", ");
    throw optionsError(`it takes no ${unknown.join(", ")}; it takes ${known}.`);
  }
  return requestOptions(processor, changes);
}

/** Whether a processor cannot follow its options; else whatever went wrong has nothing to do with them. */
export function isAboutOptions(error: unknown): error is EngineError {
  return error instanceof EngineError && (error.code === "invalid_checkpoint" || error.code === "unsupported_model");
}

/** Options that a deployment changed; those of the checkpoint itself were followed. */
export function optionsError(reason: string, cause?: unknown): EngineError {
  return new EngineError(
    "invalid_configuration",
    `The settings change options of the image processor (mm_processor_kwargs) that it cannot follow: ${reason}`,
    { cause, parameter: "mmProcessorOptions" },
  );
}

/** Options of real processors have two levels; what is deeper could exhaust the stack. */
const MAX_DEPTH = 8;

function isJson(value: unknown, depth: number): value is CanonicalValue {
  if (value === null || typeof value === "boolean" || typeof value === "string") return true;
  if (typeof value === "number") return Number.isFinite(value);
  if (typeof value !== "object" || depth === 0) return false;
  return Object.values(value).every((member) => isJson(member, depth - 1));
}
