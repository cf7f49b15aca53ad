/** Imports the logits processors of the settings, lets them validate requests, and constructs them. */
import { callWithin, CallTimeout } from "../../call-within.ts";
import type { EngineConfig, LogitsProcessorReference } from "../../contract/config.ts";
import { EngineError } from "../../contract/errors.ts";
import type { SamplingParams } from "../../contract/sampling-params.ts";
import type { LogitsProcessor } from "../contract/logits-processor.ts";
import { RequestLogitsProcessorAdapter } from "../contract/request-logits-processor-adapter.ts";
import { reasonOf } from "../contract/row-failures.ts";
import { isAsyncFunction, refusePromise } from "../contract/synchronous.ts";
import { isBuiltIn } from "./built-in-names.ts";
import { freezeSamplingParams } from "./freeze-sampling-params.ts";
import { importExport } from "./import-export.ts";
import { requireProcessorClass } from "./processor-class.ts";
import type { LogitsProcessorClass } from "./processor-class.ts";
import { prepareProcessorModules } from "./processor-modules.ts";

/**
 * For `validateParams` of all processors together, during which HTTP does not answer. It takes microseconds to check a
 * few arguments. On a busy machine, the thread may pause for some hundred milliseconds.
 */
const VALIDATE_TIMEOUT_MS = 1000;

export interface LoadedLogitsProcessor {
  /** As spelled in the setting. */
  readonly name: string;
  /** Position among the loaded ones, for messages: `1 of 2`. */
  readonly position: string;
  readonly processorClass: LogitsProcessorClass;
  readonly options: Readonly<Record<string, unknown>>;
  /** Resolves to the same class from any thread and working directory. */
  readonly reference: LogitsProcessorReference;
}

/**
 * Imports each class in order, also one that is named twice; names of built-in rules are left out. Names are `module:Export`: see `findProcessorModule` for
 * the module; the export may be dotted. In those modules, `fovea` is this running engine.
 *
 * @throws EngineError `invalid_logits_processor` with the processor's position, its name and the places tried.
 */
export async function loadLogitsProcessors(
  references: readonly LogitsProcessorReference[],
  searchPath: readonly string[],
): Promise<LoadedLogitsProcessor[]> {
  if (references.length > 0) prepareProcessorModules();
  const loaded: LoadedLogitsProcessor[] = [];
  for (const [index, reference] of references.entries()) {
    if (isBuiltIn(reference)) continue;
    const name = reference.name ?? reference.className;
    const position = `${index + 1} of ${references.length}`;
    try {
      loaded.push({ name, position, ...(await resolveReference(reference, name, searchPath)) });
    } catch (cause) {
      throw loadingError({ name, position }, cause);
    }
  }
  return loaded;
}

function loadingError(
  { name, position }: Pick<LoadedLogitsProcessor, "name" | "position">,
  cause: unknown,
): EngineError {
  const message = `Logits processor ${position}, ${name}, could not be loaded: ${reasonOf(cause)}`;
  return new EngineError("invalid_logits_processor", message, { cause });
}

const methods = ["apply", "isArgmaxInvariant", "updateState"] as const satisfies (keyof LogitsProcessor)[];
const adapterMethods = [
  ...methods,
  "newRequestLogitsProcessor",
] as const satisfies (keyof RequestLogitsProcessorAdapter)[];

/** Throws EngineError `invalid_logits_processor` if the constructor throws, or methods are missing or asynchronous. */
export function createLogitsProcessor(loaded: LoadedLogitsProcessor, config: EngineConfig): LogitsProcessor {
  const { name, position, processorClass, options } = loaded;
  let processor: LogitsProcessor;
  try {
    // Copies, so that a processor that changes them affects neither the engine nor an instance that replaces it.
    processor = new processorClass(structuredClone(config), config.device, structuredClone(options));
  } catch (cause) {
    const message = `The constructor of logits processor ${position}, ${name}, threw: ${reasonOf(cause)}`;
    throw new EngineError("invalid_logits_processor", message, { cause });
  }
  checkMethods(loaded, processor);
  return processor;
}

/** The types of a class in JavaScript are not checked. */
function checkMethods(loaded: LoadedLogitsProcessor, processor: LogitsProcessor): void {
  const required = processor instanceof RequestLogitsProcessorAdapter ? adapterMethods : methods;
  const functions = required.map((method) => ({ method, value: Reflect.get(processor, method) as unknown }));
  const missing = functions.filter(({ value }) => typeof value !== "function").map(({ method }) => method);
  if (missing.length > 0) throw loadingError(loaded, new Error(`the class lacks ${missing.join(", ")}.`));
  const late = functions.filter(({ value }) => isAsyncFunction(value)).map(({ method }) => method);
  if (late.length > 0) throw loadingError(loaded, new Error(`${late.join(", ")} must not be asynchronous.`));
}

/** A processor's rejection of a request's parameters. */
export interface ProcessorRefusal {
  /** The processor's name, as spelled in the setting. */
  readonly name: string;
  /** The processor's message. */
  readonly reason: string;
  readonly cause: unknown;
}

/** Calls every class with `validateParams`, and freezes the parameters. Returns null if none rejects. */
export function findRefusal(
  loaded: readonly Pick<LoadedLogitsProcessor, "name" | "processorClass">[],
  params: SamplingParams,
): ProcessorRefusal | null {
  const asked = loaded.filter(({ processorClass }) => processorClass.validateParams !== undefined);
  if (asked.length === 0) return null;
  freezeSamplingParams(params);
  let name = "";
  try {
    callWithin(VALIDATE_TIMEOUT_MS, () => {
      for (const { name: nameOfAsked, processorClass } of asked) {
        name = nameOfAsked;
        const returned: unknown = processorClass.validateParams?.(params);
        refusePromise(returned, "validateParams()");
      }
    });
    return null;
  } catch (cause) {
    return { name, reason: reasonOf(cause), cause };
  }
}

/**
 * Throws EngineError `invalid_argument` with the message of the first class that rejects, or `logits_processor_failed`
 * for one that does not return.
 */
export function validateWithProcessors(
  loaded: readonly Pick<LoadedLogitsProcessor, "name" | "processorClass">[],
  params: SamplingParams,
): void {
  const refusal = findRefusal(loaded, params);
  if (refusal === null) return;
  const { name, reason, cause } = refusal;
  if (cause instanceof CallTimeout) {
    const message = `The logits processor ${name} failed: validateParams() ${reason}.`;
    throw new EngineError("logits_processor_failed", message, { cause });
  }
  throw new EngineError("invalid_argument", reason, { cause, parameter: "samplingParams.extraArgs" });
}

async function resolveReference(
  { className, options }: LogitsProcessorReference,
  name: string,
  searchPath: readonly string[],
): Promise<Omit<LoadedLogitsProcessor, "name" | "position">> {
  const { url, exportPath, value } = await importExport(className, searchPath);
  const processorClass = requireProcessorClass(value);
  const reference = { name, className: `${url}:${exportPath.join(".")}`, options };
  return { processorClass, options, reference };
}
