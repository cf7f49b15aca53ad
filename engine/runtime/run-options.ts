/** Options of runs, by ONNX Runtime's names, e.g. `gpu_graph_id`. */
import { invariant } from "../contract/errors.ts";
import type { Pointer } from "./ort-api.ts";
import { checkStatus, ortEnvironment } from "./ort-environment.ts";

export class RunOptions implements Disposable {
  #options: Pointer | null;

  /** @throws EngineError `runtime_failed` for an entry that ONNX Runtime rejects. */
  constructor(configEntries: Readonly<Record<string, string>> = {}) {
    const { api, out } = ortEnvironment();
    checkStatus(api, api.CreateRunOptions(out));
    const options = out[0]!;
    try {
      for (const [key, value] of Object.entries(configEntries)) {
        checkStatus(api, api.AddRunConfigEntry(options, key, value));
      }
    } catch (error) {
      api.ReleaseRunOptions(options);
      throw error;
    }
    this.#options = options;
  }

  /** The native handle; for this folder only. */
  get handle(): Pointer {
    invariant(this.#options !== null, "run options are used after their disposal");
    return this.#options;
  }

  /** Ends a run that is under way with these options before its next node, and every later one. */
  terminate(): void {
    const { api } = ortEnvironment();
    checkStatus(api, api.RunOptionsSetTerminate(this.handle));
  }

  /** Disposing twice has no effect. */
  [Symbol.dispose](): void {
    if (this.#options === null) return;
    ortEnvironment().api.ReleaseRunOptions(this.#options);
    this.#options = null;
  }
}

let shrinkingOptions: RunOptions | null = null;

/**
 * Options of a run that computes nothing and, at its end, returns memory that host runs no longer use. Created at first
 * use and kept for the life of the thread.
 */
export function shrinkingRunOptions(): RunOptions {
  if (shrinkingOptions !== null) return shrinkingOptions;
  const options = new RunOptions({ "memory.enable_memory_arena_shrinkage": "cpu:0" });
  options.terminate();
  shrinkingOptions = options;
  return options;
}
