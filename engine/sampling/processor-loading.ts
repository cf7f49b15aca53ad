/** Imports the logits processors that settings name, lets them look at requests, and constructs them. */
import type { EngineConfig, LogitsProcessorReference } from "../config.ts";
import { EngineError } from "../errors.ts";
import type { SamplingParams } from "../sampling-params.ts";
import { findProcessorModule } from "./find-processor-module.ts";
import { requireProcessorClass, walkExports } from "./processor-class.ts";
import type { LogitsProcessor } from "./logits-processor.ts";
import type { LogitsProcessorClass } from "./processor-class.ts";
import { prepareProcessorModules } from "./processor-modules.ts";
import { parseProcessorName } from "./processor-name.ts";

export interface LoadedLogitsProcessor {
  /** As the setting spells it. */
  readonly name: string;
  /** Among those loaded, for messages: `1 of 2`. */
  readonly position: string;
  readonly processorClass: LogitsProcessorClass;
  readonly options: Readonly<Record<string, unknown>>;
  /** Leads to the same class from any thread and working directory. */
  readonly reference: LogitsProcessorReference;
}

/**
 * Imports each class, in order, also one named twice. Names are `module:Export`; `findProcessorModule` says what the
 * module may be, and the export may be dotted. In those modules `fovea` is this very engine.
 *
 * @throws EngineError `invalid_configuration` with the processor's position, its name and what was tried.
 */
export async function loadLogitsProcessors(
  references: readonly LogitsProcessorReference[],
  searchPath: readonly string[],
): Promise<LoadedLogitsProcessor[]> {
  if (references.length > 0) prepareProcessorModules();
  const loaded: LoadedLogitsProcessor[] = [];
  for (const [index, reference] of references.entries()) {
    const name = reference.name ?? reference.className;
    const position = `${index + 1} of ${references.length}`;
    try {
      loaded.push({ name, position, ...(await resolveReference(reference, name, searchPath)) });
    } catch (cause) {
      const message = `Logits processor ${position}, ${name}, could not be loaded: ${messageOf(cause)}`;
      throw new EngineError("invalid_configuration", message, { cause });
    }
  }
  return loaded;
}

/** Throws EngineError `invalid_configuration` when the constructor throws. */
export function createLogitsProcessor(loaded: LoadedLogitsProcessor, config: EngineConfig): LogitsProcessor {
  const { name, position, processorClass, options } = loaded;
  try {
    return new processorClass(config, config.device, options);
  } catch (cause) {
    const message = `The constructor of logits processor ${position}, ${name}, threw: ${messageOf(cause)}`;
    throw new EngineError("invalid_configuration", message, { cause });
  }
}

/** Asks every class; throws EngineError `invalid_argument` with the message of the first that refuses. */
export function validateWithProcessors(
  loaded: readonly Pick<LoadedLogitsProcessor, "processorClass">[],
  params: SamplingParams,
): void {
  for (const { processorClass } of loaded) {
    try {
      processorClass.validateParams?.(params);
    } catch (cause) {
      const parameter = "samplingParams.extraArgs";
      throw new EngineError("invalid_argument", messageOf(cause), { cause, parameter });
    }
  }
}

async function resolveReference(
  { className, options }: LogitsProcessorReference,
  name: string,
  searchPath: readonly string[],
): Promise<Omit<LoadedLogitsProcessor, "name" | "position">> {
  const { modulePath, exportPath } = parseProcessorName(className);
  const url = await findProcessorModule(modulePath, searchPath);
  const module = await importModule(url);
  const processorClass = requireProcessorClass(walkExports(module, exportPath));
  const reference = { name, className: `${url}:${exportPath.join(".")}`, options };
  return { processorClass, options, reference };
}

async function importModule(url: string): Promise<unknown> {
  try {
    return await import(url);
  } catch (cause) {
    const isCommonJs = /outside a module|ES module syntax|Unexpected token 'export'/.test(messageOf(cause));
    const advice = isCommonJs ? ' Does the package.json beside it lack "type": "module"?' : "";
    throw new Error(`its module ${url} threw when it was imported: ${messageOf(cause)}${advice}`, { cause });
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
