/**
 * Jobs of a queue-based RunPod endpoint, whose worker this process is. Leases do not expire while heartbeats list the
 * job. RunPod has no call that gives a job back: `release` keeps the job, and hands it out again in this process.
 */
import { setTimeout as sleep } from "node:timers/promises";

import type { Logger } from "../../logger.ts";
import { refusalResult } from "../job-result.ts";
import type { JobResult } from "../job-result.ts";
import { LeaseLostError } from "../job-source.ts";
import type { JobSource, LeasedJob } from "../job-source.ts";
import { createRunpodApi, RunpodError } from "./runpod-api.ts";
import type { RunpodApi, RunpodTimes, RunpodWorkerSettings } from "./runpod-api.ts";
import { readRunpodJob, toRunpodOutput } from "./runpod-input.ts";
import type { RunpodInput } from "./runpod-input.ts";
import { RunpodStream } from "./runpod-stream.ts";

/** RunPod may answer at once that there are no jobs, or that calls fail; calls then follow at this distance. */
const PAUSE_MS = 1_000;
/** The SDK's pause after 429. */
const TOO_MANY_REQUESTS_PAUSE_MS = 5_000;
/** A shorter interval of heartbeats does not make RunPod answer sooner. */
const MIN_PING_TIMEOUT_MS = 2_000;

export interface RunpodJobSourceOptions {
  readonly worker: RunpodWorkerSettings;
  readonly pingMs: number;
  /** The answer to `GET /v1/models`. */
  readonly listModels: () => object;
  readonly logger: Logger;
  readonly times?: RunpodTimes;
}

/** A job that RunPod counts as this worker's. */
interface HeldJob {
  readonly id: string;
  readonly input: RunpodInput;
  readonly lost: AbortController;
  readonly stream: RunpodStream;
  numDeliveries: number;
  retry: NodeJS.Timeout | undefined;
}

export function createRunpodJobSource(options: RunpodJobSourceOptions): JobSource {
  return new RunpodJobSource(options);
}

/** Mutable. */
class RunpodJobSource implements JobSource {
  readonly name: string;
  readonly leaseMs = Number.POSITIVE_INFINITY;
  readonly answersSenders = true;
  readonly #options: RunpodJobSourceOptions;
  readonly #api: RunpodApi;
  /** By id, from the moment RunPod hands them out until RunPod has their results. */
  readonly #held = new Map<string, HeldJob>();
  /** Held jobs that nothing works on, in order. */
  readonly #ready: HeldJob[] = [];
  readonly #closing = new AbortController();
  #isStopping = false;
  #polling: { readonly done: Promise<void>; readonly stop: AbortController } | null = null;
  #loops: Promise<unknown> | null = null;
  #changed = Promise.withResolvers<void>();

  constructor(options: RunpodJobSourceOptions) {
    this.#options = options;
    this.name = `RunPod, ${new URL(options.worker.jobUrl).host}`;
    this.#api = createRunpodApi(options.worker, options.times);
  }

  async take(maxNumJobs: number, signal: AbortSignal): Promise<readonly LeasedJob[]> {
    this.#isStopping = signal.aborted;
    this.#loops ??= Promise.all([this.#sendHeartbeats(), this.#followStopSignals()]);
    const onAbort = (): void => {
      this.#isStopping = true;
      this.#polling?.stop.abort();
    };
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      if (this.#ready.length === 0 && !signal.aborted) {
        const { done } = (this.#polling ??= this.#startPoll(maxNumJobs));
        await Promise.race([done, this.#changed.promise]);
      }
      return this.#ready.splice(0, maxNumJobs).map((job) => this.#toLeased(job));
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }

  async close(): Promise<void> {
    this.#isStopping = true;
    this.#closing.abort();
    this.#polling?.stop.abort();
    for (const { retry } of this.#held.values()) clearTimeout(retry);
    await Promise.allSettled([this.#polling?.done, this.#loops]);
    this.#held.clear();
  }

  /** It goes on when `take` returns a job that is due again. */
  #startPoll(maxNumJobs: number) {
    const stop = new AbortController();
    const done = this.#poll(maxNumJobs, stop.signal).finally(() => (this.#polling = null));
    done.catch(() => {});
    return { done, stop };
  }

  async #poll(maxNumJobs: number, signal: AbortSignal): Promise<void> {
    const start = performance.now();
    let pauseMs = 0;
    try {
      const texts = await this.#api.takeJobs(maxNumJobs, this.#held.size > 0, signal);
      for (const text of texts) this.#receive(text);
      if (texts.length === 0) pauseMs = PAUSE_MS - (performance.now() - start);
    } catch (error) {
      if (!(error instanceof RunpodError && error.status === 429)) throw error;
      pauseMs = TOO_MANY_REQUESTS_PAUSE_MS;
    }
    await this.#pause(pauseMs, signal);
  }

  #receive(text: string): void {
    const job = readRunpodJob(text);
    if (job === null) {
      this.#options.logger.error("RunPod handed out a job without an id.", { job: text.slice(0, 200) });
      return;
    }
    const { id, input } = job;
    // A second delivery of a job that is still here has the same answer.
    if (this.#held.has(id)) return;
    const { logger } = this.#options;
    const stream = new RunpodStream(
      (part) => this.#api.postChunk(id, part),
      (error) => logger.warn("RunPod did not accept a chunk; the stream ends.", { jobId: id, error }),
    );
    const held: HeldJob = { id, input, lost: new AbortController(), stream, numDeliveries: 1, retry: undefined };
    this.#held.set(id, held);
    if (input.form === "models") void this.#answerModels(held);
    else this.#ready.push(held);
  }

  async #answerModels(job: HeldJob): Promise<void> {
    const models = this.#options.listModels();
    try {
      if (job.input.usesStream) await this.#api.postChunk(job.id, models);
      await this.#api.postResult(job.id, { output: [models] }, job.input.usesStream);
    } catch (error) {
      this.#options.logger.error("RunPod did not accept the list of models.", { jobId: job.id, error });
    } finally {
      this.#held.delete(job.id);
    }
  }

  #toLeased(job: HeldJob): LeasedJob {
    const { id, input, lost, stream, numDeliveries } = job;
    let isOver = false;
    /** Runs the end of the lease, unless it ended before. */
    const end = async (returnJob: () => Promise<void>): Promise<void> => {
      if (isOver || this.#held.get(id) !== job) return;
      isOver = true;
      await returnJob();
    };
    return {
      id,
      body: input.message,
      numDeliveries,
      lost: lost.signal,
      ...(input.usesStream && { stream: async (chunk) => stream.write(`data: ${JSON.stringify(chunk)}\n\n`) }),
      async renew() {
        if (lost.signal.aborted) throw new LeaseLostError(id);
      },
      complete: (result) => end(() => this.#finish(job, result)),
      reject: (result) => end(() => this.#finish(job, result)),
      release: (delayMs) => end(() => this.#release(job, delayMs)),
    };
  }

  async #release(job: HeldJob, delayMs: number): Promise<void> {
    if (this.#isStopping) {
      // Without a heartbeat that lists it, RunPod ends the job or hands it to another worker.
      this.#held.delete(job.id);
      return;
    }
    if (job.stream.hasBegun) {
      const message = "The answer failed after a part of it was streamed; retry the job.";
      await this.#finish(job, refusalResult(job.id, null, { code: "stream_failed", message }));
      return;
    }
    job.numDeliveries += 1;
    job.retry = setTimeout(() => {
      this.#ready.push(job);
      this.#announce();
    }, delayMs);
  }

  /**
   * Rejects if RunPod does not take the result; the job then ends by RunPod's timeouts. Rejects with LeaseLostError if
   * RunPod refuses the result and an error in its place.
   */
  async #finish(job: HeldJob, result: JobResult): Promise<void> {
    const { id, input, stream } = job;
    try {
      const output = toRunpodOutput(result, input.form);
      if (input.usesStream) await this.#endStream(job, result.isSuccess ? output : null);
      await this.#api.postResult(id, output, input.usesStream).catch(async (error: unknown) => {
        if (!(error instanceof RunpodError) || error.isTemporary) throw error;
        const numBytes = Buffer.byteLength(result.text);
        const message = `RunPod refused the result, which has ${numBytes} bytes, with status ${error.status}. Ask for less, or have results delivered to S3.`;
        const refusal = { error: JSON.stringify({ code: "result_refused", message }) };
        await this.#api.postResult(id, refusal, input.usesStream).catch((cause: unknown) => {
          throw cause instanceof RunpodError && !cause.isTemporary
            ? new LeaseLostError(id, refusedTwice(cause))
            : cause;
        });
        this.#options.logger.error("RunPod refused the result of a job.", { jobId: id, error });
      });
    } finally {
      await stream.end();
      this.#held.delete(id);
    }
  }

  /** An OpenAI client reads the stream: the events, or the answer as the only chunk. */
  async #endStream({ id, stream }: HeldJob, output: object | null): Promise<void> {
    if (stream.hasBegun) {
      if (output !== null) await stream.write("data: [DONE]\n\n");
      await stream.end();
      return;
    }
    const [answer] = output !== null && "output" in output && Array.isArray(output.output) ? output.output : [];
    if (answer === undefined) return;
    await this.#api.postChunk(id, answer).catch((error: unknown) => {
      this.#options.logger.warn("RunPod did not accept the chunk of an answer.", { jobId: id, error });
    });
  }

  async #sendHeartbeats(): Promise<void> {
    const { pingMs, logger } = this.#options;
    const timeoutMs = Math.max(pingMs, MIN_PING_TIMEOUT_MS);
    let isInTrouble = false;
    while (!this.#closing.signal.aborted) {
      try {
        await this.#api.ping(
          [...this.#held.keys()],
          AbortSignal.any([this.#closing.signal, AbortSignal.timeout(timeoutMs)]),
        );
        isInTrouble = false;
        await this.#pause(pingMs);
      } catch (error) {
        if (this.#closing.signal.aborted) return;
        if (!isInTrouble) logger.warn("A heartbeat to RunPod failed; retrying.", { error });
        isInTrouble = true;
        await this.#pause(Math.min(pingMs, PAUSE_MS));
      }
    }
  }

  async #followStopSignals(): Promise<void> {
    const { signal } = this.#closing;
    let isInTrouble = false;
    while (!signal.aborted) {
      const start = performance.now();
      try {
        const ids = await this.#api.takeStopSignals(signal);
        isInTrouble = false;
        for (const id of ids) this.#cancel(id);
        if (ids.length === 0) await this.#pause(PAUSE_MS - (performance.now() - start));
      } catch (error) {
        if (signal.aborted) return;
        const isBusy = error instanceof RunpodError && error.status === 429;
        if (!isInTrouble && !isBusy) {
          this.#options.logger.warn("Cancellations cannot be read from RunPod; retrying.", { error });
        }
        isInTrouble = true;
        await this.#pause(isBusy ? TOO_MANY_REQUESTS_PAUSE_MS : PAUSE_MS);
      }
    }
  }

  #cancel(id: string): void {
    const job = this.#held.get(id);
    if (job === undefined) return;
    this.#held.delete(id);
    clearTimeout(job.retry);
    const index = this.#ready.indexOf(job);
    if (index !== -1) this.#ready.splice(index, 1);
    job.lost.abort(new LeaseLostError(id));
  }

  #announce(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }

  async #pause(ms: number, signal = this.#closing.signal): Promise<void> {
    if (ms > 0) await sleep(ms, null, { signal }).catch(() => {});
  }
}

/** RunPod does not say whether a job is cancelled, timed out, or unknown to it. */
function refusedTwice(cause: RunpodError): Error {
  return new Error(
    `RunPod refused the result of the job, and an error in its place, with status ${cause.status}: it may be cancelled or timed out.`,
    { cause },
  );
}
