/** The engine threads. Each computes a copy of the model, for a part of the requests. */
import type { EngineRequest } from "../core/engine-request.ts";
import { EngineThread } from "./engine-thread.ts";
import type { EngineThreadListener } from "./engine-thread.ts";
import type { EngineCoreStats, FromEngineThread, WorkerOptions } from "./messages.ts";
import { PrefixRoutes } from "./prefix-routes.ts";
import type { KnownPrefix } from "./prefix-routes.ts";
import type { StepStall } from "./step-progress.ts";
import { totalStats } from "./total-stats.ts";

export interface EngineThreadsListener extends Pick<
  EngineThreadListener,
  "onPhase" | "onDevice" | "onEncoded" | "onFailed"
> {
  /** All threads accept requests from now on. */
  onReady(): void;
  onOutputs(message: Extract<FromEngineThread, { kind: "outputs" }>): void;
  /** See `EngineThreadListener.onStall`. */
  onStall(stall: StepStall | null, thread: EngineThread): void;
}

export interface EngineThreadsOptions {
  /** At least 1. */
  readonly count: number;
  readonly stepTimeoutMs: number;
  /** See `EngineThreadData`. */
  readonly cudaDeviceId: number | null;
  /** Whether threads reuse the keys and values of prefixes. */
  readonly reusesPrefixes: boolean;
}

/** A thread that knows this many tokens of a prompt may have one sequence more than another thread, and be chosen. */
const TOKENS_PER_MORE_SEQUENCE = 128;
const MAX_MORE_SEQUENCES = 2;

/** Mutable. */
export class EngineThreads {
  readonly #threads: readonly EngineThread[];
  readonly #routes: PrefixRoutes<EngineThread> | null;
  /** Where the search for the least busy thread begins. */
  #next = 0;

  /** Starts the threads, which load their modules and wait for `load`. */
  constructor(
    listener: EngineThreadsListener,
    { count, stepTimeoutMs, cudaDeviceId, reusesPrefixes }: EngineThreadsOptions,
  ) {
    let numReady = 0;
    this.#threads = Array.from({ length: count }, (_, index) => {
      const thread: EngineThread = new EngineThread(
        {
          // The others do the same at the same time.
          onPhase: (phase, seconds) => (index === 0 ? listener.onPhase(phase, seconds) : undefined),
          onDevice: (device) => listener.onDevice(device),
          onReady: () => {
            numReady += 1;
            if (numReady === count) listener.onReady();
          },
          onOutputs: (message) => listener.onOutputs(message),
          onEncoded: (images) => listener.onEncoded(images),
          onStall: (stall) => listener.onStall(stall, thread),
          onFailed: (error) => listener.onFailed(error),
        },
        stepTimeoutMs,
        cudaDeviceId,
      );
      return thread;
    });
    this.#routes = count > 1 && reusesPrefixes ? new PrefixRoutes() : null;
  }

  /** Of all threads together. */
  get stats(): EngineCoreStats {
    return totalStats(this.#threads.map(({ stats }) => stats));
  }

  /** Call it once. */
  load(options: WorkerOptions): void {
    for (const thread of this.#threads) thread.load(options);
  }

  /** The thread that computes the request: one that knows the longest part of its prompt, or the least busy one. */
  choose(request: EngineRequest): EngineThread {
    if (this.#routes === null) return this.#nextLeastBusy();
    const keys = this.#routes.keysOf(request);
    const chosen = this.#chooseFor(this.#routes.find(keys));
    this.#routes.add(keys, chosen);
    return chosen;
  }

  /** Resolves when all threads have ended. Idempotent. @throws EngineError As `EngineThread.close` does. */
  async close(): Promise<void> {
    const results = await Promise.allSettled(this.#threads.map((thread) => thread.close()));
    const failed = results.find((result) => result.status === "rejected");
    if (failed !== undefined) throw failed.reason;
  }

  #chooseFor(known: KnownPrefix<EngineThread> | null): EngineThread {
    if (known === null) return this.#nextLeastBusy();
    const knowing = leastBusyOf(known.targets);
    const numMore = Math.min(MAX_MORE_SEQUENCES, Math.floor(known.numTokens / TOKENS_PER_MORE_SEQUENCE));
    const isFreeEnough = knowing.numSequences <= leastBusyOf(this.#threads).numSequences + numMore;
    return isFreeEnough ? knowing : this.#nextLeastBusy();
  }

  /** Those that are equally busy take turns. */
  #nextLeastBusy(): EngineThread {
    const ordered = [...this.#threads.slice(this.#next), ...this.#threads.slice(0, this.#next)];
    const least = leastBusyOf(ordered);
    this.#next = (this.#threads.indexOf(least) + 1) % this.#threads.length;
    return least;
  }
}

/** The first of those with the fewest sequences. */
function leastBusyOf(threads: readonly EngineThread[]): EngineThread {
  return threads.reduce((best, thread) => (thread.numSequences < best.numSequences ? thread : best));
}
