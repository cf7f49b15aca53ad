/** The engine threads. Each computes a copy of the model, for a part of the requests. */
import process from "node:process";

import type { EngineRequest } from "../core/engine-request.ts";
import type { DecoderGraph, VisionEncoderGraph } from "../models/built-model.ts";
import { WeightSharing } from "../runtime/shared-weights.ts";
import type { SharedWeights } from "../runtime/shared-weights.ts";
import { numThreadsOf, numThreadsOfAll } from "../runtime/usable-cores.ts";
import { canLoadLater, chooseCopy, needsAllCopies, PrefixRoutes } from "./choose-copy.ts";
import type { CopyLimits } from "./choose-copy.ts";
import { CopyActivity } from "./copy-activity.ts";
import { EngineThread } from "./engine-thread.ts";
import type { EngineThreadListener } from "./engine-thread.ts";
import type { EngineCoreStats, FromEngineThread, ModelCopy, WorkerOptions } from "./messages.ts";
import type { StepStall } from "./step-progress.ts";
import { noStats, totalStats } from "./total-stats.ts";

export interface EngineThreadsListener extends Pick<
  EngineThreadListener,
  "onPhase" | "onDevice" | "onEncoded" | "onFailed"
> {
  /** Requests are accepted from now on. */
  onReady(): void;
  onOutputs(message: Extract<FromEngineThread, { kind: "outputs" }>): void;
  /** See `EngineThreadListener.onStall`. */
  onStall(stall: StepStall | null, thread: EngineThread): void;
}

export interface EngineThreadsOptions {
  readonly stepTimeoutMs: number;
  /** See `EngineThreadData`. */
  readonly cudaDeviceId: number | null;
  /** Whether threads reuse the keys and values of prefixes. */
  readonly reusesPrefixes: boolean;
}

/** What the threads of several copies are loaded with. */
interface Copies {
  readonly options: WorkerOptions;
  readonly activity: SharedArrayBuffer;
  readonly weights: ModelCopy["weights"];
  readonly limits: CopyLimits;
  readonly sharing: WeightSharing | null;
}

/** Mutable. */
export class EngineThreads {
  readonly #listener: EngineThreadsListener;
  readonly #options: EngineThreadsOptions;
  /** The first thread starts with the engine, the others with their copies. */
  readonly #threads: EngineThread[] = [];
  readonly #routes: PrefixRoutes<EngineThread> | null;
  /** Null for one copy, and before `load`. */
  #copies: Copies | null = null;
  /** The position among the ready threads of the one whose turn it is. */
  #next = 0;
  #isReady = false;

  /** Starts the first thread, which loads its modules and waits for `load`. */
  constructor(listener: EngineThreadsListener, options: EngineThreadsOptions) {
    this.#listener = listener;
    this.#options = options;
    this.#routes = options.reusesPrefixes ? new PrefixRoutes() : null;
    this.#startThread();
  }

  /** Of all copies together, also of those that are not loaded yet. */
  get stats(): EngineCoreStats {
    const stats = this.#threads.map((thread) => thread.stats);
    const [first] = stats as [EngineCoreStats];
    if (!this.#isReady || this.#copies === null) return first;
    const { kvCapacity } = first;
    const missing = { ...noStats, kvCapacity };
    const { numCopies } = this.#copies.limits;
    return totalStats(
      Array.from({ length: numCopies }, (_, index) =>
        this.#threads[index]?.isReady === true ? stats[index]! : missing,
      ),
    );
  }

  /**
   * Loads the model: all copies, or the first one, and the others when there is enough work for them. Call it once.
   *
   * @throws EngineError `runtime_failed` if the weights that several threads share cannot be mapped.
   */
  load(options: WorkerOptions): void {
    const { config, model } = options;
    const [first] = this.#threads as [EngineThread];
    const numCopies = config.dataParallelSize ?? 1;
    if (numCopies === 1) return first.load(options);
    using owned = new DisposableStack();
    const sharing = owned.use(WeightSharing.create());
    const weights = { decoder: share(sharing, model.decoder), visionEncoder: share(sharing, model.visionEncoder) };
    const gathers = weights.decoder !== null && numThreadsOfAll(config) > numThreadsOf(config);
    const limits = { numCopies, gathers, maxNumSequences: config.maxNumSequences };
    this.#copies = { options, activity: CopyActivity.createBuffer(numCopies), weights, limits, sharing };
    owned.move();
    this.#loadCopy(first, 0);
    if (!canLoadLater(limits)) this.#loadOthers();
  }

  /** The thread that computes the request: see `chooseCopy`. Those that are equally suited take turns. */
  choose(request: EngineRequest): EngineThread {
    if (this.#copies === null) return this.#threads[0]!;
    const { limits } = this.#copies;
    const ready = this.#threads.filter(({ isReady }) => isReady);
    if (needsAllCopies(ready, limits)) this.#loadOthers();
    const keys = this.#routes?.keysOf(request) ?? [];
    const inTurn = [...ready.slice(this.#next), ...ready.slice(0, this.#next)];
    const chosen = chooseCopy(inTurn, this.#routes?.find(keys) ?? null, limits);
    this.#routes?.add(keys, chosen);
    this.#next = (ready.indexOf(chosen) + 1) % ready.length;
    return chosen;
  }

  /** Resolves when all threads have ended. Idempotent. @throws EngineError As `EngineThread.close` does. */
  async close(): Promise<void> {
    const results = await Promise.allSettled(this.#threads.map((thread) => thread.close()));
    const failed = results.find((result) => result.status === "rejected");
    // A thread that has not ended may still read what is shared.
    if (failed !== undefined) throw failed.reason;
    this.#copies?.sharing?.[Symbol.dispose]();
  }

  #startThread(): EngineThread {
    const index = this.#threads.length;
    const listener = this.#listener;
    const thread: EngineThread = new EngineThread(
      {
        onPhase: (phase, seconds) => (index === 0 ? listener.onPhase(phase, seconds) : undefined),
        onDevice: (device) => listener.onDevice(device),
        onReady: () => this.#takeReady(),
        onOutputs: (message) => listener.onOutputs(message),
        onEncoded: (images) => listener.onEncoded(images),
        onStall: (stall) => listener.onStall(stall, thread),
        onFailed: (error) => {
          if (thread.isReady || !this.#isReady) listener.onFailed(error);
          else process.emitWarning(`A further copy of the model could not be loaded: ${error.message}`);
        },
      },
      this.#options.stepTimeoutMs,
      this.#options.cudaDeviceId,
    );
    this.#threads.push(thread);
    return thread;
  }

  /** Does nothing if they are loaded already, or have failed to. */
  #loadOthers(): void {
    const numCopies = this.#copies?.limits.numCopies ?? 1;
    while (this.#threads.length < numCopies) this.#loadCopy(this.#startThread(), this.#threads.length - 1);
  }

  #loadCopy(thread: EngineThread, index: number): void {
    const { options, activity, weights } = this.#copies!;
    thread.load({ ...options, copy: { index, activity, weights } });
  }

  #takeReady(): void {
    this.#copies?.sharing?.releasePages();
    if (this.#isReady) return;
    // Of those that were loaded at once.
    if (!this.#threads.every(({ isReady }) => isReady)) return;
    this.#isReady = true;
    this.#listener.onReady();
  }
}

/** Null for an export, whose weights are in its own file, and where files cannot be mapped. */
function share(
  sharing: WeightSharing | null,
  graph: DecoderGraph | VisionEncoderGraph | { readonly form: "export" } | null,
): SharedWeights | null {
  return sharing === null || graph?.form !== "in-place" ? null : sharing.share(graph.weights);
}
