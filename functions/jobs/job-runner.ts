/** Takes jobs from a queue as fast as the engine has room, and returns each with a result or for another try. */
import { setTimeout as sleep } from "node:timers/promises";

import type { LineAnswer, PreparedLine } from "../batch/answer-line.ts";
import type { BatchLine } from "../batch/batch-line.ts";
import { RetryDelays } from "../batch/retry-delays.ts";
import type { RetryDelaysOptions } from "../batch/retry-delays.ts";
import { settledBefore } from "../batch/settled-before.ts";
import { WindowShare } from "../batch/window-share.ts";
import type { WorkWindow } from "../batch/work-window.ts";
import { HttpError } from "../http/errors.ts";
import type { Logger } from "../logger.ts";
import { StorageError } from "../storage/object-store.ts";
import type { RequestSpan, Telemetry } from "../telemetry/telemetry.ts";
import type { TraceContext } from "../telemetry/trace-context.ts";
import { jobKeyOf } from "./job-key.ts";
import type { JobKey } from "./job-key.ts";
import { parseMessage } from "./job-message.ts";
import type { FileJob, Job, JobTargets } from "./job-message.ts";
import { answerResult, refusalResult } from "./job-result.ts";
import type { JobRefusal, JobResult } from "./job-result.ts";
import { LeaseLostError } from "./job-source.ts";
import type { JobOutcome, JobSource, LeasedJob } from "./job-source.ts";
import { keepLease } from "./lease.ts";
import { ResultDelivery } from "./result-delivery.ts";
import type { ResultSink } from "./result-sink.ts";

/** Time for results that are computed at the last moment to be delivered, after the grace of a stop. */
const LAST_DELIVERY_MS = 1_000;
/** Time for jobs to be returned then. Platforms kill the process some seconds after the grace. */
const RETURN_MS = 4_000;
/** Time in which a queue must let its connections end. */
const CLOSE_MS = 3_000;
/** Interval at which a runner looks whether the engine can compute again. */
const LOOK_MS = 500;

/** Statuses of answers that may differ on the next try. */
const retryableStatuses: ReadonlySet<number> = new Set([500, 502, 503, 504]);

export interface JobRunnerOptions {
  readonly source: JobSource;
  /** Every result goes to each of them, in this order. */
  readonly sinks: readonly ResultSink[];
  /** Sinks that the message names. Throws HttpError for a place that the settings do not allow. */
  readonly openTargets: (targets: JobTargets) => readonly ResultSink[];
  readonly prepareLine: (line: BatchLine, tenant: string, span?: RequestSpan) => PreparedLine;
  /** Absent if no traces are sent. */
  readonly telemetry?: Telemetry;
  /** Computes all lines of a file. Null if the engine ended before the file was complete. Throws HttpError for bad input. */
  readonly runFile: (leased: LeasedJob, job: FileJob, signal: AbortSignal) => Promise<JobResult | null>;
  /**
   * Whether the engine can compute now. While it cannot, no jobs are taken: each would be released at once, and after
   * some deliveries rejected. Default: it always can.
   */
  readonly canCompute?: () => boolean;
  /** Limits the sequences in progress together with those of batches. */
  readonly window: WorkWindow;
  /** Jobs beyond this number of deliveries are rejected: they may have ended the process each time. */
  readonly maxNumDeliveries: number;
  readonly maxMessageBytes: number;
  /** Of the messages of all running jobs together. Default: no limit. */
  readonly maxHeldBytes?: number;
  /** Delays before a job, the queue or a place of results is tried again. */
  readonly retry: RetryDelaysOptions;
  readonly onOutcome: (outcome: JobOutcome) => void;
  /** Called when a job has begun or ended. Default: nothing. */
  readonly onNumRunning?: (numRunning: number) => void;
  readonly logger: Logger;
}

type Attempt =
  | { readonly kind: "complete" | "reject"; readonly result: JobResult; readonly sinks: readonly ResultSink[] }
  | { readonly kind: "release"; readonly delayMs: number };

/** Mutable. */
export class JobRunner {
  readonly #options: JobRunnerOptions;
  readonly #stopping = new AbortController();
  readonly #underWay = new Set<Promise<void>>();
  /** End the work on jobs that are under way. */
  readonly #attempts = new Set<AbortController>();
  readonly #delays: RetryDelays;
  readonly #delivery: ResultDelivery;
  #heldBytes = 0;
  readonly #share: WindowShare;
  /** Their lines enter the window by themselves. */
  #numFiles = 0;
  #taking: Promise<void> | null = null;
  #ended: Promise<void> | null = null;
  #isInTrouble = false;

  constructor(options: JobRunnerOptions) {
    this.#options = options;
    this.#delays = new RetryDelays(options.retry);
    this.#delivery = new ResultDelivery(options);
    this.#share = new WindowShare(options.window, this.#stopping.signal);
  }

  get numRunning(): number {
    return this.#underWay.size;
  }

  /** Called once, when the engine is ready. */
  start(): void {
    this.#taking = this.#takeJobs();
  }

  /**
   * Takes no more jobs, releases those that have not begun, and waits until the others have ended. After `graceMs` it
   * releases those whose results cannot be delivered, and soon after that it resolves in any case: a queue that does not
   * answer hands out its jobs again. The first call decides. Never rejects.
   */
  stop(graceMs = 0): Promise<void> {
    return (this.#ended ??= this.#end(graceMs));
  }

  async #end(graceMs: number): Promise<void> {
    this.#stopping.abort();
    const timer = setTimeout(() => this.#endAttempts(), graceMs + LAST_DELIVERY_MS);
    const ended = (async () => {
      await this.#taking;
      await Promise.all(this.#underWay);
    })();
    const isInTime = await isDoneWithin(graceMs + LAST_DELIVERY_MS + RETURN_MS, ended);
    clearTimeout(timer);
    if (isInTime) return;
    const { source, logger } = this.#options;
    const numJobs = this.#underWay.size;
    logger.warn("The queue does not answer; it hands out the jobs again.", { source: source.name, numJobs });
  }

  async close(): Promise<void> {
    await this.stop();
    const { source, sinks, logger } = this.#options;
    const closing = Promise.all([source, ...sinks].map((part) => part.close())).catch((error: unknown) => {
      logger.warn("The queue of jobs was not closed cleanly.", { error });
    });
    await isDoneWithin(CLOSE_MS, closing);
  }

  #endAttempts(): void {
    for (const attempt of this.#attempts) attempt.abort(new Error("The service stopped before the job was done."));
  }

  /** Never rejects. */
  async #takeJobs(): Promise<void> {
    const { source, window, logger, canCompute = () => true } = this.#options;
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      if (!canCompute()) {
        await sleep(LOOK_MS, null, { signal }).catch(() => {});
        continue;
      }
      // A job may have several sequences, so the number of jobs is limited as well.
      const room = Math.min(window.free, window.maxWeight - this.#numWorking, this.#roomForMessages());
      if (room <= 0 && !this.#isIdle && !this.#isCrowdedOut) {
        await settledBefore(signal, Promise.race([window.whenChanged(), ...this.#underWay]));
        continue;
      }
      try {
        const jobs = await source.take(Math.max(1, room), signal);
        if (this.#isInTrouble) logger.info("The queue of jobs works again.", { source: source.name });
        this.#isInTrouble = false;
        this.#delays.reset("");
        for (const job of jobs) this.#begin(job);
      } catch (error) {
        if (signal.aborted) return;
        if (!this.#isInTrouble)
          logger.warn("The queue of jobs does not work; retrying.", { source: source.name, error });
        this.#isInTrouble = true;
        await sleep(this.#delays.afterFailure(""), null, { signal }).catch(() => {});
      }
    }
  }

  /** Jobs under way, without those that wait for another try: as many of them as the window has places. */
  get #numWorking(): number {
    return this.#underWay.size - Math.min(this.#share.numPostponed, this.#options.window.maxWeight);
  }

  /** Whether a job may be taken without room for it. */
  get #isIdle(): boolean {
    const hasRoom = this.#underWay.size === 0 || this.#roomForMessages() > 0;
    return this.#options.window.isEmpty && this.#numWorking === 0 && hasRoom;
  }

  /**
   * Whether batches or files fill the window, and no job waits for a place there. They always have a next line waiting, so
   * no place is ever free; but places are given in turn, so one job may wait with them.
   */
  get #isCrowdedOut(): boolean {
    const { window } = this.#options;
    const isFilledByOthers = window.free <= 0 && window.weight > this.#share.weightInside;
    const hasRoom = this.#numWorking < window.maxWeight && this.#roomForMessages() > 0;
    const isNoneWaiting = this.#numWorking === this.#share.numInside + this.#numFiles;
    return isFilledByOthers && hasRoom && isNoneWaiting;
  }

  /** Number of messages that may be taken now, as each may have the maximum length. */
  #roomForMessages(): number {
    const { maxHeldBytes = Number.POSITIVE_INFINITY, maxMessageBytes } = this.#options;
    return Math.floor((maxHeldBytes - this.#heldBytes) / maxMessageBytes);
  }

  #begin(job: LeasedJob): void {
    const numBytes = Buffer.byteLength(job.body);
    this.#heldBytes += numBytes;
    const working = this.#work(job);
    this.#underWay.add(working);
    this.#options.onNumRunning?.(this.#underWay.size);
    void working.finally(() => {
      this.#underWay.delete(working);
      this.#heldBytes -= numBytes;
      this.#options.onNumRunning?.(this.#underWay.size);
    });
  }

  /** Never rejects: of a job whose return fails, the queue decides. */
  async #work(job: LeasedJob): Promise<void> {
    const { source, logger } = this.#options;
    const lease = keepLease(job, source.leaseMs, logger);
    const ending = new AbortController();
    lease.lost.addEventListener("abort", () => ending.abort(lease.lost.reason), { once: true });
    if (lease.lost.aborted) ending.abort(lease.lost.reason);
    this.#attempts.add(ending);
    let outcome: JobOutcome = "lost";
    try {
      const attempt = await this.#attempt(job, ending.signal);
      // A renewal after the job is returned would be an error.
      await lease.stop();
      if (lease.lost.aborted) throw lease.lost.reason;
      outcome = await this.#return(job, attempt);
    } catch (error) {
      if (error instanceof LeaseLostError) {
        logger.warn("A job was lost to another worker or cancelled.", { jobId: job.id, reason: reasonOf(error) });
      } else {
        const message = "A job could not be returned to its queue, which hands it out again or ends it.";
        logger.error(message, { jobId: job.id, error });
      }
    } finally {
      this.#attempts.delete(ending);
      await lease.stop();
      this.#options.onOutcome(outcome);
    }
  }

  async #return(job: LeasedJob, attempt: Attempt): Promise<JobOutcome> {
    if (attempt.kind === "release") {
      await job.release(attempt.delayMs);
      return "released";
    }
    this.#delays.reset(job.id);
    if (attempt.kind === "complete") {
      await job.complete(attempt.result);
      return "completed";
    }
    await job.reject(attempt.result);
    this.#options.logger.warn("A job was rejected.", { jobId: job.id, result: attempt.result.text.slice(0, 500) });
    return "rejected";
  }

  /** Computes and delivers the result. Never rejects. */
  async #attempt(job: LeasedJob, signal: AbortSignal): Promise<Attempt> {
    const { logger, maxNumDeliveries } = this.#options;
    const key = jobKeyOf(job);
    let attempt: Attempt | null = null;
    try {
      attempt = await this.#compute(job, key, signal);
      if (attempt.kind === "release") return attempt;
      const result = await this.#delivery.deliver(attempt.sinks, key, attempt.result, signal);
      return { ...attempt, kind: result.isRefusal ? "reject" : "complete", result };
    } catch (error) {
      if (signal.aborted) return { kind: "release", delayMs: 0 };
      // Otherwise a place that takes no result would keep the job for ever, also one whose answer is stored elsewhere.
      if (attempt !== null && attempt.kind !== "release" && job.numDeliveries > maxNumDeliveries) {
        logger.error("The result of a job could not be delivered; the job is rejected.", { jobId: job.id, error });
        return { ...attempt, kind: "reject" };
      }
      const delayMs = this.#delays.afterFailure(job.id);
      logger.error("A job failed; it will be retried.", { jobId: job.id, afterMs: delayMs, error });
      return { kind: "release", delayMs };
    }
  }

  async #compute(job: LeasedJob, key: JobKey, signal: AbortSignal): Promise<Attempt> {
    const { sinks, openTargets, maxNumDeliveries, maxMessageBytes } = this.#options;
    const reject = (customId: string | null, refusal: JobRefusal, places = sinks): Attempt => {
      return { kind: "reject", result: refusalResult(job.id, customId, refusal), sinks: places };
    };
    const numBytes = Buffer.byteLength(job.body);
    if (numBytes > maxMessageBytes) {
      const message = `The message has ${numBytes} bytes; the limit is ${maxMessageBytes}. Store pictures on S3 and send their addresses.`;
      return reject(null, { code: "message_too_long", message });
    }
    const parsed = parseMessage(job.id, job.body, { canStream: job.stream !== undefined });
    if (parsed.kind === "bad") return reject(parsed.customId, parsed.refusal);
    const customId = customIdOf(parsed.job);
    let places: readonly ResultSink[];
    try {
      places = [...sinks, ...openTargets(parsed.job.targets)];
    } catch (error) {
      return reject(customId, toRefusal(error));
    }
    const stored = await this.#delivery.find(places, key, signal);
    if (stored !== null) return { kind: "complete", result: stored, sinks: places };
    if (job.numDeliveries > maxNumDeliveries) {
      const message = `The job was handed out ${job.numDeliveries} times without a result; the limit is ${maxNumDeliveries}, which JOB_MAX_DELIVERIES sets. The logs of the workers say why.`;
      return reject(customId, { code: "too_many_deliveries", message }, places);
    }
    return this.#run(job, parsed.job, { signal, places });
  }

  async #run(
    leased: LeasedJob,
    job: Job,
    { signal, places: sinks }: { readonly signal: AbortSignal; readonly places: readonly ResultSink[] },
  ): Promise<Attempt> {
    const { id, numDeliveries, tenant = "" } = leased;
    if (job.kind === "file") {
      this.#numFiles += 1;
      try {
        const result = await this.#options.runFile(leased, job, signal);
        return result === null ? { kind: "release", delayMs: 0 } : { kind: "complete", result, sinks };
      } catch (error) {
        const isLastTry = numDeliveries >= this.#options.maxNumDeliveries && !signal.aborted;
        const refusal = isLastTry && error instanceof StorageError ? refuseFile(error) : toRefusal(error);
        return { kind: "reject", result: refusalResult(id, job.customId, refusal), sinks };
      } finally {
        this.#numFiles -= 1;
      }
    }
    const span = this.#startSpan(leased, leased.traceContext ?? job.traceContext);
    const prepared = this.#options.prepareLine(job.line, tenant, span);
    const answer = await this.#answer(prepared, signal, leased.stream?.bind(leased)).catch((error: unknown) => {
      span?.end("failed");
      throw error;
    });
    if (answer.kind === "given up") {
      span?.end("given_up");
      return { kind: "release", delayMs: 0 };
    }
    const { response } = answer;
    span?.setAttributes({ "http.response.status_code": response.statusCode });
    span?.end(response.statusCode < 400 ? null : String(response.statusCode));
    const isLastTry = numDeliveries >= this.#options.maxNumDeliveries;
    if (retryableStatuses.has(response.statusCode) && !isLastTry) {
      return { kind: "release", delayMs: this.#delays.afterFailure(id) };
    }
    return { kind: "complete", result: answerResult(id, job.line.customId, response), sinks };
  }

  #startSpan({ id, numDeliveries }: LeasedJob, parent: TraceContext | null): RequestSpan | undefined {
    const { source, telemetry } = this.#options;
    return telemetry?.startSpan({
      name: "process job",
      kind: "consumer",
      parent,
      attributes: {
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": source.name,
        "messaging.message.id": id,
        "fovea.job.deliveries": numDeliveries,
      },
    });
  }

  /** Waits for room in the engine. */
  async #answer(
    { numSequences, answer }: PreparedLine,
    signal: AbortSignal,
    stream?: (chunk: object) => Promise<void>,
  ): Promise<LineAnswer> {
    if (!(await this.#share.enter(numSequences))) return { kind: "given up" };
    const begun = { numSequences, answer: () => answer(signal, stream) };
    return this.#share.answer(begun, async (answered) => answered, signal);
  }
}

async function isDoneWithin(timeoutMs: number, work: Promise<unknown>): Promise<boolean> {
  const late = Promise.withResolvers<false>();
  const timer = setTimeout(() => late.resolve(false), timeoutMs);
  const isDone = await Promise.race([work.then(() => true), late.promise]);
  clearTimeout(timer);
  return isDone;
}

/** What the queue said, if it said more than that the lease is lost. */
function reasonOf({ message, cause }: LeaseLostError): string {
  return cause instanceof Error ? cause.message : message;
}

function customIdOf(job: Job): string | null {
  return job.kind === "line" ? job.line.customId : job.customId;
}

function refuseFile({ message }: StorageError): JobRefusal {
  const remedy = "Check input, output and the worker's permissions for them, and send the job again.";
  return { code: "storage_failed", message: `${message} ${remedy}` };
}

/** Rethrows errors that are not about the input. */
function toRefusal(error: unknown): JobRefusal {
  if (!(error instanceof HttpError)) throw error;
  return { code: error.code, message: error.message, parameter: error.parameter || null };
}
