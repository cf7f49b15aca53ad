/** Delivers results to their places, and waits while a place that the settings name does not work. */
import { setTimeout as sleep } from "node:timers/promises";

import { RetryDelays } from "../batch/retry-delays.ts";
import type { RetryDelaysOptions } from "../batch/retry-delays.ts";
import type { Logger } from "../logger.ts";
import type { JobKey } from "./job-key.ts";
import type { JobResult } from "./job-result.ts";
import { ResultRefusedError } from "./result-sink.ts";
import type { ResultSink } from "./result-sink.ts";

export interface ResultDeliveryOptions {
  /** Places that all jobs share. While one does not work, its results wait here: a job is not to blame for that. */
  readonly sinks: readonly ResultSink[];
  readonly retry: RetryDelaysOptions;
  readonly logger: Logger;
}

/** Mutable. */
export class ResultDelivery {
  readonly #options: ResultDeliveryOptions;
  readonly #delays: RetryDelays;
  readonly #inTrouble = new Set<ResultSink>();

  constructor(options: ResultDeliveryOptions) {
    this.#options = options;
    this.#delays = new RetryDelays(options.retry);
  }

  /**
   * The answer that an earlier delivery of the job stored; null if there is none. A refusal and an answer with status 5xx
   * are none: somebody may have handed out the job again because their reason is gone.
   */
  async find(places: readonly ResultSink[], key: JobKey, signal: AbortSignal): Promise<JobResult | null> {
    for (const sink of places) {
      const stored = await this.#whenItWorks(
        sink,
        key.jobId,
        signal,
        async () => (await sink.find?.(key, signal)) ?? null,
      );
      if (stored !== null && stored.isTransient !== true) return stored;
    }
    return null;
  }

  /**
   * Delivers a result to all places, and resolves to the one that they have: if another worker was faster, its result.
   * Rejects if a place refuses the result, if one that the job itself names does not work, and when `signal` is aborted.
   */
  async deliver(
    places: readonly ResultSink[],
    key: JobKey,
    result: JobResult,
    signal: AbortSignal,
  ): Promise<JobResult> {
    let standing = result;
    // Places that keep the first result decide for the others.
    const keepers = places.filter((place) => "find" in place);
    const others = places.filter((place) => !("find" in place));
    for (const sink of [...keepers, ...others]) {
      const delivered = standing;
      standing = await this.#whenItWorks(sink, key.jobId, signal, () => sink.put(delivered, key, signal));
    }
    return standing;
  }

  async #whenItWorks<Value>(
    sink: ResultSink,
    jobId: string,
    signal: AbortSignal,
    call: () => Promise<Value>,
  ): Promise<Value> {
    const { sinks, logger } = this.#options;
    for (;;) {
      try {
        const value = await call();
        if (this.#inTrouble.delete(sink)) logger.info("The place of results works again.", { place: sink.name });
        this.#delays.reset(jobId);
        return value;
      } catch (error) {
        if (signal.aborted || error instanceof ResultRefusedError || !sinks.includes(sink)) throw error;
        if (!this.#inTrouble.has(sink)) {
          logger.error("The place of results does not work; jobs wait for it.", { place: sink.name, jobId, error });
        }
        this.#inTrouble.add(sink);
      }
      await sleep(this.#delays.afterFailure(jobId), null, { signal });
    }
  }
}
