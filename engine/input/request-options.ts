/** What a request, or a deployment, changes of an image processor's options. */
import { EngineError } from "../errors.ts";
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

/** Options of real processors have two levels; what is deeper could exhaust the stack. */
const MAX_DEPTH = 8;

function isJson(value: unknown, depth: number): value is CanonicalValue {
  if (value === null || typeof value === "boolean" || typeof value === "string") return true;
  if (typeof value === "number") return Number.isFinite(value);
  if (typeof value !== "object" || depth === 0) return false;
  return Object.values(value).every((member) => isJson(member, depth - 1));
}
