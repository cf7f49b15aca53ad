/**
 * Runs the JavaScript of @mlc-ai/web-xgrammar, its only importer. The package is a browser bundle that neither
 * `import` nor `require` can load: a UMD script in a package marked as ES modules. Its functions are asynchronous
 * because they load the WebAssembly module first; a context with a microtask queue of its own lets them be called from
 * the engine thread, which never waits.
 */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { Script, compileFunction, createContext, runInContext } from "node:vm";
import type * as WebXGrammar from "@mlc-ai/web-xgrammar";

import { invariant } from "../contract/errors.ts";
import { withoutStateMerging } from "./xgrammar-repair.ts";

export type XGrammarLibrary = typeof WebXGrammar;

export interface LibraryHooks {
  /** Called with the WebAssembly instance's memory before the library looks at it. */
  readonly onMemory: (memory: WebAssembly.Memory) => void;
  /** What the library would write to the console. */
  readonly onMessage: (message: string) => void;
}

interface Job {
  readonly start: () => Promise<unknown>;
  outcome: { readonly value: unknown } | { readonly error: unknown } | null;
}

interface Sandbox {
  readonly evaluateBundle: (...globals: unknown[]) => void;
  readonly context: { job: Job | null };
  /** Starts `context.job` and runs all microtasks it leads to. */
  readonly runJob: () => void;
  /** A promise of the context, fulfilled. */
  readonly promiseOf: (value: unknown) => Promise<unknown>;
  readonly url: string;
}

/**
 * The bundle looks for these. `process` stays undefined, so that it takes itself to be in a browser; so does
 * `FinalizationRegistry`, since objects whose memory is overwritten must never be freed behind our back.
 */
const bundleGlobals = ["exports", "module", "location", "console", "WebAssembly", "process", "FinalizationRegistry"];
/** In place of the context's own, since the library checks its arguments with `instanceof`. */
const byteArrays = { ArrayBuffer, Uint8Array, Int8Array, Uint8ClampedArray };
const wordArrays = { Uint16Array, Int16Array, Uint32Array, Int32Array, Float32Array, Float64Array };
const sharedConstructors = { ...byteArrays, ...wordArrays, TextDecoder, atob };

/** One per thread; opened when the first grammar comes. */
let openedSandbox: Sandbox | null = null;
/** The compiled code, shared by all instances of a thread. */
let compiledModule: WebAssembly.Module | null = null;

/** A copy of the library with a WebAssembly instance of its own. */
export function createLibrary(hooks: LibraryHooks): XGrammarLibrary {
  const sandbox = (openedSandbox ??= openSandbox());
  const exports = {};
  const console = { log: hooks.onMessage, warn: hooks.onMessage, error: hooks.onMessage };
  const hookedWebAssembly = {
    RuntimeError: WebAssembly.RuntimeError,
    instantiate: (code: Uint8Array, imports: object) => {
      compiledModule ??= new WebAssembly.Module(withoutStateMerging(code));
      const instance = new WebAssembly.Instance(compiledModule, imports);
      hooks.onMemory(memoryOf(instance));
      return sandbox.promiseOf({ instance, module: compiledModule });
    },
  };
  sandbox.evaluateBundle(exports, { exports }, { href: sandbox.url }, console, hookedWebAssembly);
  return exports as XGrammarLibrary;
}

/** The result of one of the library's asynchronous functions, at once. Throws what it rejects with. */
export function settle<Result>(start: () => Promise<Result>): Result {
  invariant(openedSandbox !== null, "a function of XGrammar is called before the library is loaded");
  const job: Job = { start, outcome: null };
  openedSandbox.context.job = job;
  openedSandbox.runJob();
  const { outcome } = job as { outcome: Job["outcome"] };
  invariant(outcome !== null, "a function of XGrammar waits for more than its own promises");
  if ("error" in outcome) throw outcome.error;
  return outcome.value as Result;
}

function openSandbox(): Sandbox {
  const path = createRequire(import.meta.url).resolve("@mlc-ai/web-xgrammar");
  const context = createContext({ ...sharedConstructors, job: null }, { microtaskMode: "afterEvaluate" });
  const runner = new Script(`{
    const { job } = globalThis;
    job.start().then((value) => { job.outcome = { value }; }, (error) => { job.outcome = { error }; });
  }`);
  return {
    evaluateBundle: compileFunction(readFileSync(path, "utf8"), bundleGlobals, {
      filename: path,
      parsingContext: context,
    }) as Sandbox["evaluateBundle"],
    context: context as Sandbox["context"],
    runJob: () => void runner.runInContext(context),
    promiseOf: runInContext("(value) => Promise.resolve(value)", context) as Sandbox["promiseOf"],
    url: pathToFileURL(path).href,
  };
}

function memoryOf(instance: WebAssembly.Instance): WebAssembly.Memory {
  const memory = Object.values(instance.exports as Readonly<Record<string, unknown>>).find(
    (exported) => exported instanceof WebAssembly.Memory,
  );
  invariant(memory !== undefined, "the WebAssembly module of XGrammar exports no memory");
  return memory;
}
