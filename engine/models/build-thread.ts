/**
 * Builds a model in a thread of its own, which ends when it is built: the modules, parsed configurations and graphs that
 * this takes, several megabytes, go with the thread, and meanwhile the caller's loads what else it needs.
 */
import { Worker } from "node:worker_threads";
import { EngineError } from "../errors.ts";
import type { EngineErrorCode } from "../errors.ts";
import type { WeightProgress } from "../weights/progress.ts";
import type { BuildModelOptions } from "./build-model.ts";
import type { BuiltModel } from "./built-model.ts";

export type ToBuildThread =
  /** Sent once at most. `folder` is the checkpoint's. */
  | {
      readonly kind: "build";
      readonly folder: string;
      readonly options: Omit<BuildModelOptions, "onProgress" | "signal">;
    }
  | { readonly kind: "abort" };

export type FromBuildThread =
  | { readonly kind: "progress"; readonly progress: WeightProgress }
  | { readonly kind: "built"; readonly model: BuiltModel }
  | { readonly kind: "failed"; readonly code: EngineErrorCode; readonly message: string; readonly cause: unknown };

/** For one model. Loads its modules from its construction on; disposing of it aborts what it does. */
export class BuildThread implements AsyncDisposable {
  readonly #worker = new Worker(new URL("./build-worker.ts", import.meta.url), { name: "model-builder" });
  readonly #exited = Promise.withResolvers<void>();
  /** Rejected when the thread has ended, for whatever reason. */
  readonly #ended = Promise.withResolvers<never>();

  constructor() {
    this.#ended.promise.catch(() => {});
    this.#worker.on("error", (cause) => {
      this.#ended.reject(
        new EngineError("internal", "The thread that builds the model ended with an error.", { cause }),
      );
    });
    this.#worker.on("exit", () => {
      this.#ended.reject(new EngineError("internal", "The thread that builds the model ended by itself."));
      this.#exited.resolve();
    });
  }

  /** Once at most. Throws EngineError as `openCheckpoint` and `buildModel` do; `internal` where the thread ends. */
  async build(
    folder: string,
    { onProgress, signal, dtype, device, maxModelLen, cacheFolder, numThreads }: BuildModelOptions,
  ): Promise<BuiltModel> {
    const { promise, resolve, reject } = Promise.withResolvers<BuiltModel>();
    this.#worker.on("message", (message: FromBuildThread) => {
      switch (message.kind) {
        case "progress":
          return onProgress?.(message.progress);
        case "built":
          return resolve(message.model);
        case "failed":
          return reject(new EngineError(message.code, message.message, { cause: message.cause }));
      }
    });
    const abort = (): void => this.#post({ kind: "abort" });
    signal?.addEventListener("abort", abort);
    this.#post({ kind: "build", folder, options: { dtype, device, maxModelLen, cacheFolder, numThreads } });
    if (signal?.aborted === true) abort();
    try {
      return await Promise.race([promise, this.#ended.promise]);
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#post({ kind: "abort" });
    await this.#exited.promise;
  }

  /** A message to a thread that has ended is lost. */
  #post(message: ToBuildThread): void {
    this.#worker.postMessage(message);
  }
}
