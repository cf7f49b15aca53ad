/**
 * Logits processors given as classes. A class cannot be sent to the engine thread, so the thread imports it from the
 * module that the class names.
 */
import { EngineError } from "../../contract/errors.ts";
import { requireProcessorClass } from "./processor-class.ts";
import type { LogitsProcessorClass } from "./processor-class.ts";
import type { LoadedLogitsProcessor } from "./processor-loading.ts";

/** A class that can be imported by another thread. */
export interface ImportableLogitsProcessorClass extends LogitsProcessorClass {
  /** `import.meta.url` of the module that exports the class under its own name. */
  readonly moduleUrl: string;
}

export type GivenLogitsProcessor =
  | ImportableLogitsProcessorClass
  | { readonly class: ImportableLogitsProcessorClass; readonly options?: Readonly<Record<string, unknown>> };

/**
 * Imports nothing: the engine thread finds out whether the module exports the class.
 *
 * @throws EngineError `invalid_logits_processor`, with position and name, for a value that is not a logits processor's
 *   class, and for a class without a name or without a `moduleUrl` of its own.
 */
export function takeClasses(given: readonly GivenLogitsProcessor[]): LoadedLogitsProcessor[] {
  return given.map((entry, index) => {
    const { class: processorClass, options = {} } = typeof entry === "function" ? { class: entry, options: {} } : entry;
    const position = `${index + 1} of ${given.length}`;
    try {
      const className = classNameOf(requireProcessorClass(processorClass));
      const { name } = processorClass;
      return { name, position, processorClass, options, reference: { name, className, options } };
    } catch (cause) {
      // Programs in JavaScript can give anything.
      const name = (processorClass as { readonly name?: string } | undefined)?.name || "without a name";
      const message = `Logits processor class ${position}, ${name}, could not be loaded: ${(cause as Error).message}`;
      throw new EngineError("invalid_logits_processor", message, { cause });
    }
  });
}

/** `module:Export`. A subclass inherits the `moduleUrl` of its base class, which may be of another module. */
function classNameOf(processorClass: LogitsProcessorClass & { readonly moduleUrl?: unknown }): string {
  const { name, moduleUrl } = processorClass;
  if (name === "") throw new Error("the class needs the name under which its module exports it.");
  if (!Object.hasOwn(processorClass, "moduleUrl")) {
    throw new Error(
      `it does not say which module exports it. Add "static moduleUrl = import.meta.url;" to the class, and export it as ${name} from a module that does not create the engine.`,
    );
  }
  if (typeof moduleUrl !== "string" || !moduleUrl.startsWith("file:")) {
    throw new Error(`its static moduleUrl must be a file: URL, such as import.meta.url; got ${String(moduleUrl)}.`);
  }
  return `${moduleUrl}:${name}`;
}
