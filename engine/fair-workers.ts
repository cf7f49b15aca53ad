/** Does work in the order of a fair queue, a bounded number of pieces at once. */
import { EngineError } from "./contract/errors.ts";
import { FairQueue } from "./fair-queue.ts";
import type { FairQueueLimits, QueuedWork } from "./fair-queue.ts";

export interface FairWorkersOptions<Work extends QueuedWork, Result> {
  readonly maxNumRunning: number;
  readonly limits: FairQueueLimits;
  /** @param ended Aborted once the result is not needed any more: also after it is there. */
  readonly run: (this: void, work: Work, ended: AbortSignal) => Promise<Result>;
  readonly errors: {
    readonly aborted: (this: void) => EngineError;
    readonly closed: (this: void) => EngineError;
  };
  /** For the error of a full queue: `images`, `processed`. */
  readonly words: { readonly plural: string; readonly done: string };
}

interface Task<Work extends QueuedWork, Result> extends QueuedWork {
  readonly work: Work;
  readonly outcome: PromiseWithResolvers<Result>;
  readonly ending: AbortController;
}

export class FairWorkers<Work extends QueuedWork, Result> {
  readonly #options: FairWorkersOptions<Work, Result>;
  readonly #queue: FairQueue<Task<Work, Result>>;
  readonly #closing = new AbortController();
  #numRunning = 0;

  constructor(options: FairWorkersOptions<Work, Result>) {
    this.#options = options;
    this.#queue = new FairQueue(options.limits);
  }

  /**
   * Throws what `run` throws, the errors of the options, and EngineError `queue_full`. A request that is aborted does not
   * wait for work that runs.
   *
   * @param isAdmitted Whether the work follows other work of its request, and is not rejected by a full queue.
   */
  async do(work: Work, signal: AbortSignal, isAdmitted: boolean): Promise<Result> {
    const { errors } = this.#options;
    if (this.#closing.signal.aborted) throw errors.closed();
    if (signal.aborted) throw errors.aborted();
    const outcome = Promise.withResolvers<Result>();
    const ending = new AbortController();
    const { tenant, request, priority = 0, cost, numBytes } = work;
    const task = { tenant, request, priority, cost, numBytes, work, outcome, ending };
    const onAbort = (): void => outcome.reject(errors.aborted());
    const onClose = (): void => outcome.reject(errors.closed());
    signal.addEventListener("abort", onAbort, { once: true });
    this.#closing.signal.addEventListener("abort", onClose, { once: true });
    try {
      if (isAdmitted) this.#queue.addAdmitted(task);
      else for (const removed of this.#queue.add(task)) removed.outcome.reject(this.#queueFull());
      this.#startNext();
      return await outcome.promise;
    } finally {
      this.#queue.remove(task);
      ending.abort();
      signal.removeEventListener("abort", onAbort);
      this.#closing.signal.removeEventListener("abort", onClose);
    }
  }

  /** Rejects waiting and running work as closed. Idempotent. */
  close(): void {
    this.#closing.abort();
  }

  #startNext(): void {
    while (this.#numRunning < this.#options.maxNumRunning) {
      const task = this.#queue.take();
      if (task === null) return;
      this.#numRunning++;
      void this.#run(task).finally(() => {
        this.#numRunning--;
        // Deferred, so that a request whose first work has just ended has its next in the queue before.
        setImmediate(() => this.#startNext());
      });
    }
  }

  async #run({ work, outcome, ending }: Task<Work, Result>): Promise<void> {
    try {
      outcome.resolve(await this.#options.run(work, ending.signal));
    } catch (error) {
      outcome.reject(error);
    }
  }

  #queueFull(): EngineError {
    const { limits, words } = this.#options;
    const { numWaiting, waitingBytes } = this.#queue;
    return new EngineError(
      "queue_full",
      `${numWaiting} ${words.plural} with ${waitingBytes} bytes are waiting to be ${words.done}; the limits are ${limits.maxNumWaiting} ${words.plural} and ${limits.maxWaitingBytes} bytes.`,
    );
  }
}
