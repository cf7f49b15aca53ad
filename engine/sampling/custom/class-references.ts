/**
 * Names for logits processors that are given as classes. A class cannot be sent to the engine thread, so the thread
 * imports it again from the module that exports it.
 */
import { Session } from "node:inspector";

import type { LogitsProcessorReference } from "../../contract/config.ts";
import { EngineError } from "../../contract/errors.ts";
import { requireProcessorClass } from "./processor-class.ts";
import type { LogitsProcessorClass } from "./processor-class.ts";

/** A module that has run is available at once. A module that waits for this engine never is. */
const LOADED_WITHIN_MS = 3000;

export type GivenLogitsProcessor =
  | LogitsProcessorClass
  | { readonly class: LogitsProcessorClass; readonly options: Readonly<Record<string, unknown>> };

/**
 * @throws EngineError `invalid_logits_processor` with position and name, for a class that its module does not export
 * under its own name.
 */
export async function referToClasses(given: readonly GivenLogitsProcessor[]): Promise<LogitsProcessorReference[]> {
  const references: LogitsProcessorReference[] = [];
  for (const [index, entry] of given.entries()) {
    const { class: processorClass, options } = typeof entry === "function" ? { class: entry, options: {} } : entry;
    const name = processorClass.name || "a class without a name";
    try {
      requireProcessorClass(processorClass);
      references.push({ name, className: await findClassName(processorClass), options });
    } catch (cause) {
      const reason = cause instanceof Error ? cause.message : String(cause);
      const message = `Logits processor class ${index + 1} of ${given.length}, ${name}, could not be loaded: ${reason}`;
      throw new EngineError("invalid_logits_processor", message, { cause });
    }
  }
  return references;
}

async function findClassName(processorClass: LogitsProcessorClass): Promise<string> {
  const url = findModuleOf(processorClass);
  const advice = "the engine thread imports the class again by its name, so export it from its own module";
  if (url === null || !/^(file:|\/)/.test(url)) throw new Error(`it was not defined in a module; ${advice}.`);
  const module = await importLoaded(url);
  if (module === null) throw new Error(`${url} is still being loaded, and may be waiting for this engine; ${advice}.`);
  const exportName = Object.keys(module).find((name) => module[name] === processorClass);
  if (exportName === undefined) throw new Error(`${url} does not export it; ${advice}.`);
  return `${url}:${exportName}`;
}

/** The exports of a module that has started to run; null while it is waiting for something. */
async function importLoaded(url: string): Promise<Readonly<Record<string, unknown>> | null> {
  const late = Promise.withResolvers<null>();
  const timer = setTimeout(late.resolve, LOADED_WITHIN_MS, null);
  try {
    return (await Promise.race([import(url), late.promise])) as Readonly<Record<string, unknown>> | null;
  } finally {
    clearTimeout(timer);
  }
}

const heldForInspector = Symbol.for("fovea.heldForInspector");

/** The URL of the script that defines a class. V8 reveals it only to debuggers. */
function findModuleOf(processorClass: LogitsProcessorClass): string | null {
  const urlOfScript = new Map<string, string>();
  let scriptId: string | undefined;
  const session = new Session();
  session.connect();
  try {
    session.on("Debugger.scriptParsed", ({ params }) => urlOfScript.set(params.scriptId, params.url));
    // All replies arrive before `post` returns.
    session.post("Debugger.enable");
    Reflect.set(globalThis, heldForInspector, processorClass);
    const expression = `globalThis[Symbol.for(${JSON.stringify(heldForInspector.description)})]`;
    session.post("Runtime.evaluate", { expression }, (_error, { result }) => {
      if (result.objectId === undefined) return;
      session.post("Runtime.getProperties", { objectId: result.objectId }, (_failure, { internalProperties = [] }) => {
        const location = internalProperties.find(({ name }) => name === "[[FunctionLocation]]")?.value?.value as
          | { readonly scriptId: string }
          | undefined;
        scriptId = location?.scriptId;
      });
    });
  } finally {
    Reflect.deleteProperty(globalThis, heldForInspector);
    session.disconnect();
  }
  return (scriptId === undefined ? undefined : urlOfScript.get(scriptId)) ?? null;
}
