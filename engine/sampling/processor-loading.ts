/** Finds the logits processors that a setting names, wherever their files lie. */
import { access } from "node:fs/promises";
import { registerHooks } from "node:module";
import { join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { DeviceName, EngineConfig, LogitsProcessorReference } from "../config.ts";
import { EngineError } from "../errors.ts";
import type { SamplingParams } from "../sampling-params.ts";
import { LogitsProcessor } from "./logits-processor.ts";
import type { NamedProcessor } from "./processor-chain.ts";

interface LogitsProcessorClass {
  new (config: EngineConfig, device: DeviceName, options: Readonly<Record<string, unknown>>): LogitsProcessor;
  validateParams?(params: SamplingParams): void;
}

export interface LoadedLogitsProcessor {
  /** As the setting spells it. */
  readonly name: string;
  readonly processorClass: LogitsProcessorClass;
  readonly options: Readonly<Record<string, unknown>>;
}

const moduleExtensions = [".ts", ".js", ".mjs"];

/**
 * Imports each class, in order, also one named twice. Names are `module:Export`: the module is a dotted path
 * (`steering.target_token` is `steering/target_token.{ts,js,mjs}` below a folder of `searchPath`), a path that starts
 * with `/`, `./` or `../`, or a `file:` URL; the export may be dotted. In those files `fovea` is this very engine.
 *
 * @throws EngineError `invalid_configuration` with the processor's position, its name and what was tried.
 */
export async function loadLogitsProcessors(
  references: readonly LogitsProcessorReference[],
  searchPath: readonly string[],
): Promise<LoadedLogitsProcessor[]> {
  if (references.length > 0) resolveOwnName();
  const loaded: LoadedLogitsProcessor[] = [];
  for (const [index, { className, options }] of references.entries()) {
    try {
      loaded.push({ name: className, processorClass: await loadClass(className, searchPath), options });
    } catch (cause) {
      const position = `${index + 1} of ${references.length}`;
      const reason = cause instanceof Error ? cause.message : String(cause);
      const message = `Logits processor ${position}, ${className}, could not be loaded: ${reason}`;
      throw new EngineError("invalid_configuration", message, { cause });
    }
  }
  return loaded;
}

/** Throws EngineError `invalid_configuration` when the constructor throws. */
export function createLogitsProcessor(loaded: LoadedLogitsProcessor, config: EngineConfig): NamedProcessor {
  const { name, processorClass, options } = loaded;
  try {
    return { name, processor: new processorClass(config, config.device, options) };
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new EngineError("invalid_configuration", `The constructor of the logits processor ${name} threw: ${reason}`, {
      cause,
    });
  }
}

/** Asks every class; throws EngineError `invalid_argument` with the message of the first that refuses. */
export function validateWithProcessors(loaded: readonly LoadedLogitsProcessor[], params: SamplingParams): void {
  for (const { processorClass } of loaded) {
    try {
      processorClass.validateParams?.(params);
    } catch (cause) {
      const reason = cause instanceof Error ? cause.message : String(cause);
      throw new EngineError("invalid_argument", reason, { cause, parameter: "samplingParams.extraArgs" });
    }
  }
}

async function loadClass(className: string, searchPath: readonly string[]): Promise<LogitsProcessorClass> {
  const { modulePath, exportPath } = parseClassName(className);
  const file = await findModule(modulePath, searchPath);
  const module: unknown = await import(pathToFileURL(file).href);
  return requireProcessorClass(walkExports(module, exportPath));
}

/** The colon of a `file:` URL is not the one in front of the export. */
function parseClassName(className: string): { modulePath: string; exportPath: readonly string[] } {
  const match = /^(?<modulePath>(?:file:)?[^:]+):(?<exportPath>[\p{ID_Start}$_][\p{ID_Continue}$.]*)$/u.exec(className);
  if (match?.groups === undefined) throw new Error("expected <module>:<export>, with one colon between the two.");
  return { modulePath: match.groups.modulePath, exportPath: match.groups.exportPath.split(".") };
}

async function findModule(modulePath: string, searchPath: readonly string[]): Promise<string> {
  const candidates = modulePath.startsWith("file:")
    ? [fileURLToPath(modulePath)]
    : candidateFiles(modulePath, searchPath);
  for (const candidate of candidates) {
    const exists = await access(candidate).then(
      () => true,
      () => false,
    );
    if (exists) return candidate;
  }
  throw new Error(`the module was not found; tried ${candidates.join(", ") || "no folder: none is configured"}.`);
}

function candidateFiles(modulePath: string, searchPath: readonly string[]): string[] {
  if (/^\.{0,2}\//.test(modulePath)) {
    return ["", ...moduleExtensions].map((extension) => resolve(modulePath + extension));
  }
  const relativePath = modulePath.replaceAll(".", "/");
  return searchPath.flatMap((folder) =>
    moduleExtensions.map((extension) => join(resolve(folder), relativePath + extension)),
  );
}

function walkExports(module: unknown, exportPath: readonly string[]): unknown {
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

function requireProcessorClass(value: unknown): LogitsProcessorClass {
  if (typeof value !== "function") throw new Error(`the export is not a class but of type ${typeof value}.`);
  if (!(value.prototype instanceof LogitsProcessor)) throw new Error("the class does not extend LogitsProcessor.");
  return value as LogitsProcessorClass;
}

let isOwnNameResolved = false;

/**
 * Lets files of any folder import `fovea` and get the module instances that run in this thread: a second copy of
 * `LogitsProcessor` would make every class look like a stranger.
 */
function resolveOwnName(): void {
  if (isOwnNameResolved) return;
  isOwnNameResolved = true;
  const url = new URL("../index.ts", import.meta.url).href;
  registerHooks({
    resolve: (specifier, context, nextResolve) =>
      specifier === "fovea" ? { url, shortCircuit: true } : nextResolve(specifier, context),
  });
}
