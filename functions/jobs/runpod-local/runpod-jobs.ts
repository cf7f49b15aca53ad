/**
 * Jobs of a RunPod endpoint whose queue is the memory of this process, with the states, times and retention of
 * https://docs.runpod.io/serverless/endpoints (runpod/docs at a900806 of 2026-08-20).
 */

import { randomUuid } from "../../../engine/index.ts";
import type { PushedJobSource, PushOutcome } from "../sources/pushed-job-source.ts";
import { readRunpodInput, toRunpodOutput } from "../sources/runpod-input.ts";

/** Results are kept for this long after the end: /run, /runsync. */
const retentionMs = { run: 30 * 60 * 1000, runsync: 60 * 1000 } as const;
/** RunPod's default limits for the whole life of a job, and for its execution. */
const TTL_MS = 24 * 60 * 60 * 1000;
const EXECUTION_MS = 10 * 60 * 1000;
const MAX_JOBS = 10_000;
/** Of all results and chunks in memory. When there are more, the oldest ended jobs go first. */
const MAX_CHARACTERS = 256 * 1024 ** 2;
/** Chunks of a job that wait to be read. A stream that is not read ends; the output is complete all the same. */
const MAX_STREAM_CHARACTERS = 8 * 1024 ** 2;
const MIN_RETRY_MS = 100;

export type RunpodStatus = "IN_QUEUE" | "IN_PROGRESS" | "COMPLETED" | "FAILED" | "CANCELLED" | "TIMED_OUT";

export interface RunpodRequest {
  /** JSON. */
  readonly input: string;
  readonly executionTimeoutMs?: number | undefined;
  readonly ttlMs?: number | undefined;
}

/** Mutable. */
export interface RunpodJob {
  readonly id: string;
  readonly tenant: string;
  readonly kind: "run" | "runsync";
  status: RunpodStatus;
  readonly createdAt: number;
  takenAt: number | null;
  endedAt: number | null;
  /** `{"output"}` or `{"error"}` when it has ended. */
  result: object | null;
  /** Chunks that were not read yet. */
  chunks: unknown[];
  numCharacters: number;
  hasStreamed: boolean;
  isStreamCut: boolean;
  /** Resolves when there is a new chunk, or the job has ended; it is then replaced. */
  changed: PromiseWithResolvers<void>;
  ttl: NodeJS.Timeout | undefined;
  timeout: NodeJS.Timeout | undefined;
}

export interface RunpodJobsOptions {
  readonly source: PushedJobSource;
  /** The answer to `GET /v1/models`. */
  readonly listModels: () => object;
  /** Unix time in milliseconds. Default: the clock. */
  readonly now?: () => number;
  /** Default: 10,000. */
  readonly maxNumJobs?: number;
  /** Of all results and chunks in memory. Default: 256 Mi. */
  readonly maxCharacters?: number;
}

/** Mutable. A job is visible to its tenant alone. */
export class RunpodJobs {
  readonly #options: RunpodJobsOptions;
  readonly #now: () => number;
  /** In the order of creation. */
  readonly #jobs = new Map<string, RunpodJob>();
  #numCharacters = 0;

  constructor(options: RunpodJobsOptions) {
    this.#options = options;
    this.#now = options.now ?? Date.now;
  }

  /** Null if there is no room for another job. */
  run(tenant: string, kind: RunpodJob["kind"], request: RunpodRequest): RunpodJob | null {
    if (!this.#makeRoom()) return null;
    const job: RunpodJob = {
      id: `${kind === "runsync" ? "sync-" : ""}${randomUuid()}`,
      tenant,
      kind,
      status: "IN_QUEUE",
      createdAt: this.#now(),
      takenAt: null,
      endedAt: null,
      result: null,
      chunks: [],
      numCharacters: 0,
      hasStreamed: false,
      isStreamCut: false,
      changed: Promise.withResolvers(),
      ttl: undefined,
      timeout: undefined,
    };
    const input = readRunpodInput(request.input);
    if (input.form === "models") {
      const models = this.#options.listModels();
      if (input.usesStream) this.#addChunk(job, models);
      this.#end(job, "COMPLETED", { output: [models] });
    } else {
      const first = this.#push(job, input, request, 1);
      if (first === null) return null;
      void this.#follow(job, input, request, first);
      job.ttl = setTimeout(() => this.#stop(job, "TIMED_OUT"), request.ttlMs ?? TTL_MS).unref();
    }
    this.#jobs.set(job.id, job);
    return job;
  }

  find(tenant: string, id: string): RunpodJob | null {
    this.#forgetExpired();
    const job = this.#jobs.get(id);
    return job?.tenant === tenant ? job : null;
  }

  /** A job that has ended stays as it is. */
  cancel(job: RunpodJob): void {
    this.#stop(job, "CANCELLED");
  }

  /** Cancels the tenant's jobs that wait; those that run go on. Returns their number. */
  purge(tenant: string): number {
    const waiting = [...this.#jobs.values()].filter((job) => job.tenant === tenant && job.status === "IN_QUEUE");
    for (const job of waiting) this.cancel(job);
    return waiting.length;
  }

  /** Takes the unread chunks. */
  readChunks(job: RunpodJob): unknown[] {
    const { chunks } = job;
    job.chunks = [];
    this.#count(job, -chunks.reduce<number>((sum, chunk) => sum + sizeOf(chunk), 0));
    return chunks;
  }

  /** Resolves when the job has changed, or after `ms`. */
  async whenChanged(job: RunpodJob, ms: number): Promise<void> {
    const late = Promise.withResolvers<void>();
    const timer = setTimeout(late.resolve, ms);
    await Promise.race([job.changed.promise, late.promise]);
    clearTimeout(timer);
  }

  /** Numbers of the tenant's jobs that are kept, by status. */
  count(tenant: string): ReadonlyMap<RunpodStatus, number> {
    this.#forgetExpired();
    const counts = new Map<RunpodStatus, number>();
    for (const job of this.#jobs.values()) {
      if (job.tenant === tenant) counts.set(job.status, (counts.get(job.status) ?? 0) + 1);
    }
    return counts;
  }

  #push(
    job: RunpodJob,
    { message, usesStream }: ReturnType<typeof readRunpodInput>,
    { executionTimeoutMs }: RunpodRequest,
    numDeliveries: number,
  ): Promise<PushOutcome> | null {
    return this.#options.source.push({
      id: job.id,
      tenant: job.tenant,
      body: message,
      numDeliveries,
      onTaken: () => {
        job.status = "IN_PROGRESS";
        job.takenAt ??= this.#now();
        job.timeout ??= setTimeout(() => this.#stop(job, "TIMED_OUT"), executionTimeoutMs ?? EXECUTION_MS).unref();
      },
      ...(usesStream && { stream: async (chunk) => this.#addChunk(job, `data: ${JSON.stringify(chunk)}\n\n`) }),
    });
  }

  /** Tries again until there is a result. */
  async #follow(
    job: RunpodJob,
    input: ReturnType<typeof readRunpodInput>,
    request: RunpodRequest,
    first: Promise<PushOutcome>,
  ): Promise<void> {
    let outcome = await first;
    for (let numDeliveries = 2; outcome.kind === "released" && job.endedAt === null; numDeliveries++) {
      if (this.#options.source.isStopped) return this.#fail(job, "The worker shut down before the job was complete.");
      if (job.hasStreamed) return this.#fail(job, "The answer failed after a part of it was streamed.");
      await new Promise((resolve) => setTimeout(resolve, Math.max(MIN_RETRY_MS, delayOf(outcome))));
      const pushed = job.endedAt === null ? this.#push(job, input, request, numDeliveries) : null;
      if (pushed === null) return this.#fail(job, "Too many jobs are waiting.");
      outcome = await pushed;
    }
    if (outcome.kind === "released") return;
    const { result } = outcome;
    const output = toRunpodOutput(result, input.form);
    if (input.usesStream && result.isSuccess) {
      const whole = (output as { readonly output: unknown }).output;
      this.#addChunk(job, job.hasStreamed ? "data: [DONE]\n\n" : Array.isArray(whole) ? whole[0] : whole);
    }
    this.#end(job, result.isSuccess ? "COMPLETED" : "FAILED", output);
  }

  #fail(job: RunpodJob, message: string): void {
    this.#end(job, "FAILED", { error: JSON.stringify({ code: "job_failed", message }) });
  }

  #stop(job: RunpodJob, status: "CANCELLED" | "TIMED_OUT"): void {
    if (job.endedAt !== null) return;
    this.#end(job, status, {});
    this.#options.source.cancel(job.id);
  }

  #addChunk(job: RunpodJob, chunk: unknown): void {
    if (job.endedAt !== null || job.isStreamCut) return;
    job.isStreamCut = job.numCharacters + sizeOf(chunk) > MAX_STREAM_CHARACTERS;
    if (job.isStreamCut) return;
    job.hasStreamed = true;
    job.chunks.push(chunk);
    this.#count(job, sizeOf(chunk));
    this.#announce(job);
  }

  #end(job: RunpodJob, status: RunpodStatus, result: object): void {
    if (job.endedAt !== null) return;
    clearTimeout(job.ttl);
    clearTimeout(job.timeout);
    Object.assign(job, { status, result, endedAt: this.#now() });
    this.#count(job, sizeOf(result));
    this.#announce(job);
    this.#makeRoom();
  }

  #announce(job: RunpodJob): void {
    job.changed.resolve();
    job.changed = Promise.withResolvers();
  }

  #count(job: RunpodJob, numCharacters: number): void {
    job.numCharacters += numCharacters;
    this.#numCharacters += numCharacters;
  }

  #forgetExpired(): void {
    for (const job of this.#jobs.values()) {
      if (job.endedAt !== null && this.#now() - job.endedAt > retentionMs[job.kind]) this.#forget(job);
    }
  }

  /** Forgets ended jobs, the oldest first, until there is room for another. */
  #makeRoom(): boolean {
    this.#forgetExpired();
    const { maxNumJobs = MAX_JOBS, maxCharacters = MAX_CHARACTERS } = this.#options;
    const isFull = (): boolean => this.#jobs.size >= maxNumJobs || this.#numCharacters > maxCharacters;
    if (!isFull()) return true;
    for (const job of this.#jobs.values()) {
      if (job.endedAt === null) continue;
      this.#forget(job);
      if (!isFull()) return true;
    }
    return false;
  }

  #forget(job: RunpodJob): void {
    if (!this.#jobs.delete(job.id)) return;
    this.#numCharacters -= job.numCharacters;
  }
}

function delayOf(outcome: PushOutcome): number {
  return outcome.kind === "released" ? outcome.delayMs : 0;
}

function sizeOf(chunk: unknown): number {
  return typeof chunk === "string" ? chunk.length : JSON.stringify(chunk).length;
}
