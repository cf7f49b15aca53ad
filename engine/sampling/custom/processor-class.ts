/** A class that extends `LogitsProcessor`, as exported by a module. */
import type { DeviceName, EngineConfig } from "../../contract/config.ts";
import type { SamplingParams } from "../../contract/sampling-params.ts";
import { shown } from "../../excerpt.ts";
import { LogitsProcessor } from "../contract/logits-processor.ts";
import { isAsyncFunction } from "../contract/synchronous.ts";

export interface LogitsProcessorClass {
  new (config: EngineConfig, device: DeviceName, options: Readonly<Record<string, unknown>>): LogitsProcessor;
  validateParams?(params: SamplingParams): void;
}

/** Throws an Error that describes a value that is not such a class. */
export function requireProcessorClass(value: unknown): LogitsProcessorClass {
  if (typeof value !== "function") throw new Error(`the export is not a class but of type ${typeof value}.`);
  // Functions that cannot be called with `new`.
  if (value.prototype === undefined) throw new Error("the export is not a class but a function.");
  if (!(value.prototype instanceof LogitsProcessor)) throw new Error("the class does not extend LogitsProcessor.");
  const validateParams: unknown = Reflect.get(value, "validateParams");
  if (validateParams !== undefined && typeof validateParams !== "function") {
    throw new Error(`its static validateParams must be a function, got ${shown(validateParams)}.`);
  }
  if (isAsyncFunction(validateParams)) throw new Error("validateParams must not be asynchronous.");
  return value as LogitsProcessorClass;
}

/**
 * Returns the export of a module under a dotted path. Throws an Error that lists the existing exports.
 *
 * @param module The module's namespace object.
 */
export function walkExports(module: unknown, exportPath: readonly string[]): unknown {
  let value = module;
  for (const name of exportPath) {
    const known = value !== null && (typeof value === "object" || typeof value === "function") ? value : {};
    if (!(name in known)) {
      throw new Error(`there is no export ${name}; there are: ${Object.keys(known).join(", ") || "none"}.`);
    }
    value = known[name as keyof typeof known];
  }
  return value;
}
