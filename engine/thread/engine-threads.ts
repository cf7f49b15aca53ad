/** The engine threads. Each computes the whole model, on a GPU of its own if it is on CUDA, for a part of the requests. */
import type { EngineRequest } from "../core/engine-request.ts";
import { EngineThread } from "./engine-thread.ts";
import type { EngineThreadListener } from "./engine-thread.ts";
import type { EngineCoreStats, FromEngineThread, WorkerOptions } from "./messages.ts";
import { PrefixRoutes } from "./prefix-routes.ts";
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
  /** The GPU of the first thread; the others have the following ones. Null if nothing computes on CUDA's. */
  readonly cudaDeviceId: number | null;
  /** Whether threads reuse the keys and values of prefixes. */
  readonly reusesPrefixes: boolean;
}

/** A thread with the prefix of a prompt is chosen up to this many sequences more than another one has. */
const MAX_MORE_SEQUENCES = 4;

/** Mutable. */
export class EngineThreads {
  readonly #threads: readonly EngineThread[];
  readonly #routes: PrefixRoutes<EngineThread> | null;
  /** Where the search for the least busy thread begins, so that idle threads take turns. */
  #next = 0;
  #isOneByOne = false;
  #options: WorkerOptions | null = null;

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
            else if (this.#isOneByOne) this.#loadThread(numReady);
          },
          onOutputs: (message) => listener.onOutputs(message),
          onEncoded: (images) => listener.onEncoded(images),
          onStall: (stall) => listener.onStall(stall, thread),
          onFailed: (error) => listener.onFailed(error),
        },
        stepTimeoutMs,
        cudaDeviceId === null ? null : cudaDeviceId + index,
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
    this.#options = options;
    // While a graph is captured on one GPU, CUDA rejects calls for all others that allocate memory.
    this.#isOneByOne = options.config.device === "cuda";
    const numAtOnce = this.#isOneByOne ? 1 : this.#threads.length;
    for (let index = 0; index < numAtOnce; index++) this.#loadThread(index);
  }

  /**
   * The thread that computes the request: the one that last had the longest part of its prompt, unless that is much
   * busier than others, or the least busy one.
   */
  choose(request: EngineRequest): EngineThread {
    const least = this.#leastBusy();
    if (this.#routes === null) return least;
    const keys = this.#routes.keysOf(request);
    const known = this.#routes.find(keys);
    const isKept = known !== null && known.numSequences <= least.numSequences + MAX_MORE_SEQUENCES;
    const chosen = isKept ? known : least;
    this.#routes.set(keys, chosen);
    return chosen;
  }

  /** Resolves when all threads have ended. Idempotent. @throws EngineError As `EngineThread.close` does. */
  async close(): Promise<void> {
    const results = await Promise.allSettled(this.#threads.map((thread) => thread.close()));
    const failed = results.find((result) => result.status === "rejected");
    if (failed !== undefined) throw failed.reason;
  }

  #loadThread(index: number): void {
    const options = this.#options!;
    const { config } = options;
    // Other devices are one device for all threads.
    const deviceId = config.device === "cuda" ? config.deviceId + index : config.deviceId;
    this.#threads[index]!.load(index === 0 ? options : { ...options, config: { ...config, deviceId } });
  }

  #leastBusy(): EngineThread {
    const { length } = this.#threads;
    const ordered = this.#threads.map((_, index) => this.#threads[(this.#next + index) % length]!);
    const least = ordered.reduce((best, thread) => (thread.numSequences < best.numSequences ? thread : best));
    this.#next = (this.#threads.indexOf(least) + 1) % length;
    return least;
  }
}
