/** Runs one batch to its end, or until its worker has to release it. */
import { StorageError } from "../storage/object-store.ts";
import { prepareLine } from "./answer-line.ts";
import type { AnswerDependencies } from "./answer-line.ts";
import { LINE_ROOM_BYTES } from "./batch-line.ts";
import type { ParsedLine } from "./batch-line.ts";
import type { BatchError, BatchObject, BatchRecord, FinalStatus } from "./batch-record.ts";
import type { BatchRecords } from "./batch-records.ts";
import { checkInput } from "./check-input.ts";
import { DamagedRecordError } from "./damaged-records.ts";
import type { JobOutcome } from "./job-queue.ts";
import { readLines } from "./numbered-lines.ts";
import type { NumberedLine } from "./numbered-lines.ts";
import { writeResultFiles } from "./result-files.ts";
import type { ExpectedLines, ResultFiles } from "./result-files.ts";
import { isSuccess } from "./result-line.ts";
import type { ResultLine } from "./result-line.ts";
import type { ResultLog, ResultLogs } from "./result-log.ts";
import { runBatch } from "./run-batch.ts";
import type { StoredFiles } from "./stored-files.ts";
import { startTicker } from "./ticker.ts";
import type { WorkWindow } from "./work-window.ts";

/** A batch whose lines end the server this often is abandoned. */
const MAX_FRUITLESS_STARTS = 5;
/**
 * A batch whose attempts fail this often is abandoned: it ends with the stored results. An unreachable store does not
 * count before the batch expires, because it only delays the batch.
 */
const MAX_FAILED_ATTEMPTS = 5;

export interface BatchRunnerOptions {
  readonly records: BatchRecords;
  readonly files: StoredFiles;
  readonly logs: ResultLogs;
  /** Shared by all batches of the process; called when lines are to be answered. */
  readonly window: () => WorkWindow;
  /** Its engine is ready when lines are to be answered. */
  readonly answer: Omit<AnswerDependencies, "tenant">;
  readonly maxNumLines: number;
  /** Limit for the body of a line. */
  readonly maxBodyBytes: number;
  /** Interval at which the progress is stored, and cancellation and expiry are checked. */
  readonly tickMs: number;
  /** Unix time in milliseconds. */
  readonly now: () => number;
  /** Distinguishes the process from all others, including those before a restart. */
  readonly serverId: string;
  /** Called for a job that cannot be processed because its records are damaged. */
  readonly onDamaged: (jobId: string) => void;
}

/** Work for a JobQueue; jobs are named as in BatchRecords. */
export async function runBatchJob(
  jobId: string,
  signal: AbortSignal,
  options: BatchRunnerOptions,
): Promise<JobOutcome> {
  const { records, logs } = options;
  let job = await records.readJob(jobId);
  if (job.kind === "open") {
    const outcome = await runOpenJob(jobId, job.record, signal, options);
    if (outcome === "released" && !signal.aborted) return outcome;
    // If the job was released because its lock was lost, another worker may have ended the batch: then results stored
    // since are left over.
    job = await records.readJob(jobId);
  }
  switch (job.kind) {
    case "open":
      return "released";
    case "damaged":
      options.onDamaged(jobId);
      return "finished";
    case "ended":
      if (!isWithoutResults(job.record)) await logs.delete(jobId);
      break;
    case "unknown":
      await logs.delete(jobId);
  }
  await records.finishJob(jobId);
  return "finished";
}

async function runOpenJob(
  jobId: string,
  record: BatchRecord,
  signal: AbortSignal,
  options: BatchRunnerOptions,
): Promise<JobOutcome> {
  const log = await options.logs.open(jobId, signal);
  const job = new BatchJob(jobId, record, log, options);
  try {
    return await job.run(signal);
  } catch (error) {
    if (!signal.aborted) await job.countFailure(error);
    throw error;
  } finally {
    await log.close();
  }
}

/** Mutable. */
class BatchJob {
  readonly #jobId: string;
  readonly #log: ResultLog;
  readonly #options: BatchRunnerOptions;
  #record: BatchRecord;
  #hasStarted = false;

  constructor(jobId: string, record: BatchRecord, log: ResultLog, options: BatchRunnerOptions) {
    this.#jobId = jobId;
    this.#record = record;
    this.#log = log;
    this.#options = options;
  }

  async run(signal: AbortSignal): Promise<JobOutcome> {
    await this.#noticeEnding();
    const { numFailedAttempts, ending: noticed } = this.#record;
    if (noticed !== "failed" && numFailedAttempts >= MAX_FAILED_ATTEMPTS) {
      await this.#fail([givenUp(numFailedAttempts)]);
    }
    // The lines of a batch that expired before its validation are reported too.
    const hasLines = !this.#isEnding || this.#record.ending === "expired";
    if (hasLines && this.#batch.status === "validating") await this.#validate();
    const answered = this.#isEnding ? null : await this.#answerLines(signal);
    // Before anything says that the batch has ended: an ending without its results could not be undone.
    await this.#log.flush();
    const ending = answered === null ? this.#record.ending : "completed";
    if (ending !== null) {
      await this.#end(ending, answered);
      return "finished";
    }
    if (this.#hasStarted) await this.#release();
    return "released";
  }

  /** Call it when `run` has rejected. Never rejects: an attempt that cannot be counted may be repeated. */
  async countFailure(error: unknown): Promise<void> {
    if (error instanceof StorageError && this.#nowSeconds < this.#batch.expires_at) return;
    const numFailedAttempts = this.#record.numFailedAttempts + 1;
    try {
      await this.#update({}, { numFailedAttempts });
    } catch (cause) {
      this.#warn(cause);
    }
  }

  get #batch(): BatchObject {
    return this.#record.batch;
  }

  get #isEnding(): boolean {
    return this.#record.ending !== null;
  }

  get #storedCounts(): BatchObject["request_counts"] {
    const { numSucceeded: completed, numFailed: failed } = this.#log.numStored;
    return { ...this.#batch.request_counts, completed, failed };
  }

  get #nowSeconds(): number {
    return Math.floor(this.#options.now() / 1000);
  }

  async #update(batch: Partial<BatchObject>, beside: Partial<Omit<BatchRecord, "batch">> = {}): Promise<void> {
    this.#record = { ...this.#record, ...beside, batch: { ...this.#batch, ...batch } };
    await this.#options.records.writeJob(this.#jobId, this.#record);
  }

  /** A batch may have to end before all its lines are answered. */
  async #noticeEnding(): Promise<void> {
    if (this.#isEnding) return;
    const cancellingAt = await this.#options.records.cancellingAt(this.#jobId);
    if (cancellingAt !== null) {
      await this.#update({ status: "cancelling", cancelling_at: cancellingAt }, { ending: "cancelled" });
    } else if (this.#nowSeconds >= this.#batch.expires_at) await this.#update({}, { ending: "expired" });
  }

  async #validate(): Promise<void> {
    const input = await this.#openInput();
    if (input.kind === "unreadable") return this.#fail([input.error]);
    const { numLines, errors } = await checkInput(input.lines, {
      endpoint: this.#batch.endpoint,
      maxNumLines: this.#options.maxNumLines,
    });
    if (errors.length > 0) return this.#fail(errors);
    const requestCounts = { total: numLines, completed: 0, failed: 0 };
    await this.#update({
      ...(!this.#isEnding && { status: "in_progress", in_progress_at: this.#nowSeconds }),
      request_counts: requestCounts,
    });
  }

  /**
   * Resolves to the lines once each has a result in the log, which may not be flushed yet. Null if lines are left:
   * either the record says how the batch ends, or another attempt continues.
   */
  async #answerLines(signal: AbortSignal): Promise<ExpectedLines | null> {
    if (this.#options.answer.service.state !== "ready") return null;
    if (!(await this.#tryStart())) return null;
    const { total } = this.#batch.request_counts;
    const input = await this.#openInput();
    if (input.kind === "unreadable") {
      const { done } = this.#log;
      if (done.customIds.size + done.badLines.size === total) return done;
      await this.#fail([input.error]);
      return null;
    }

    const customIds = new Set<string>();
    const badLines = new Set<number>();
    const isComplete = await this.#runLines(input.lines, signal, (line) => {
      if (line.kind === "good") customIds.add(line.customId);
      else badLines.add(line.lineNumber);
    });
    if (!isComplete) return null;
    const numLines = customIds.size + badLines.size;
    if (numLines !== total)
      throw new Error(`The input has ${numLines} lines now; it had ${total} when it was validated.`);
    return { customIds, badLines };
  }

  /** False if the batch is abandoned. */
  async #tryStart(): Promise<boolean> {
    const { serverId } = this.#options;
    const { startedBy } = this.#record;
    // This server has survived its own starts.
    const hasEnded = startedBy !== null && startedBy !== serverId;
    const numFruitlessStarts = this.#record.numFruitlessStarts + (hasEnded ? 1 : 0);
    if (numFruitlessStarts >= MAX_FRUITLESS_STARTS) {
      await this.#fail([fruitless(numFruitlessStarts)]);
      return false;
    }
    if (startedBy !== serverId) await this.#update({}, { startedBy: serverId, numFruitlessStarts });
    this.#hasStarted = true;
    return true;
  }

  /** Whether all lines have a result. */
  async #runLines(
    lines: AsyncIterable<NumberedLine>,
    signal: AbortSignal,
    onLine: (line: ParsedLine) => void,
  ): Promise<boolean> {
    const stopping = new AbortController();
    const stop = (): void => stopping.abort();
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) stop();
    const ticker = startTicker(this.#options.tickMs, async () => {
      await this.#tick();
      if (this.#isEnding) stop();
    });
    try {
      const { isComplete } = await runBatch({
        lines,
        done: this.#log.done,
        results: { append: (line) => this.#append(line), close: async () => {} },
        prepare: (line) => prepareLine(line, { ...this.#options.answer, tenant: this.#record.tenant }),
        window: this.#options.window(),
        stopping,
        logger: this.#options.answer.logger,
        onLine,
        onProgress() {},
      });
      return isComplete;
    } finally {
      await ticker.stop();
      signal.removeEventListener("abort", stop);
    }
  }

  async #append(line: ResultLine): Promise<void> {
    await this.#log.append(line);
    this.#options.answer.metrics.countBatchLine(isSuccess(line) ? "completed" : "failed");
  }

  /** Never rejects. */
  async #tick(): Promise<void> {
    try {
      await this.#noticeEnding();
      const { completed, failed } = this.#batch.request_counts;
      const { numSucceeded, numFailed } = this.#log.numStored;
      if (completed + failed !== numSucceeded + numFailed) await this.#showProgress({ numFruitlessStarts: 0 });
    } catch (error) {
      this.#warn(error);
    }
  }

  async #showProgress(beside: Partial<Omit<BatchRecord, "batch">>): Promise<void> {
    await this.#update({ request_counts: this.#storedCounts }, beside);
  }

  /** A start that is released cleanly does not count as fruitless, unless its lines have ended the engine. */
  async #release(): Promise<void> {
    // Checks the engine itself, because the service may already be draining.
    const { state, stall } = this.#options.answer.engine;
    const hasFailed = state === "failed" || stall !== null;
    await this.#showProgress(hasFailed ? {} : { startedBy: null, numFruitlessStarts: 0 });
  }

  async #fail(errors: readonly BatchError[]): Promise<void> {
    await this.#update({ errors: { object: "list", data: [...errors] } }, { ending: "failed" });
  }

  /**
   * Stores the result files, and then the ending.
   *
   * @param expected The lines that must have a result; null accepts what there is.
   */
  async #end(ending: FinalStatus, expected: ExpectedLines | null): Promise<void> {
    if (await this.#options.records.hasEnded(this.#jobId)) return;
    const reportsUnanswered = ending === "expired" && this.#batch.request_counts.total > 0;
    if (ending === "completed" || ending === "expired") {
      const counts = { request_counts: this.#storedCounts };
      await this.#update({ status: "finalizing", finalizing_at: this.#nowSeconds, ...counts });
    }
    const readInput = reportsUnanswered ? () => this.#readInput().catch(nullIfDamaged) : null;
    const sources = { log: this.#log, expected, readInput };
    const results = isWithoutResults(this.#record)
      ? noResults
      : await writeResultFiles(this.#record, sources, this.#options.files);
    const { total } = this.#batch.request_counts;
    const batch: BatchObject = {
      ...this.#batch,
      status: ending,
      [`${ending}_at`]: this.#nowSeconds,
      output_file_id: results.outputFileId,
      error_file_id: results.errorFileId,
      request_counts: { total, completed: results.numSucceeded, failed: results.numFailed },
      usage: results.usage,
    };
    await this.#options.records.endJob(this.#jobId, { ...this.#record, batch, startedBy: null });
    this.#options.answer.metrics.countBatch(ending);
  }

  async #openInput(): Promise<Input> {
    const id = this.#batch.input_file_id;
    const unreadable = (code: string, message: string): Input => {
      return { kind: "unreadable", error: { code, message, line: null, param: "input_file_id" } };
    };
    try {
      const lines = await this.#readInput();
      if (lines !== null) return { kind: "readable", lines };
      return unreadable("input_file_deleted", `The input file ${id} was deleted before the batch was complete.`);
    } catch (error) {
      if (!(error instanceof DamagedRecordError)) throw error;
      return unreadable("input_file_damaged", `The record of the input file ${id} is damaged. Upload the file again.`);
    }
  }

  /** Null if the file was deleted. */
  async #readInput(): Promise<AsyncIterable<NumberedLine> | null> {
    const input = await this.#options.files.readInput(this.#record.tenant, this.#batch.input_file_id);
    return input === null ? null : readLines(input.chunks, this.#options.maxBodyBytes + LINE_ROOM_BYTES);
  }

  #warn(error: unknown): void {
    this.#options.answer.logger.warn("The state of a batch could not be stored; retrying.", {
      job: this.#jobId,
      error,
    });
  }
}

type Input =
  | { readonly kind: "readable"; readonly lines: AsyncIterable<NumberedLine> }
  | { readonly kind: "unreadable"; readonly error: BatchError };

const noResults: ResultFiles = { outputFileId: null, errorFileId: null, numSucceeded: 0, numFailed: 0, usage: null };

/** An abandoned batch whose result files could not be created either ends without them; its log stays. */
function isWithoutResults({ numFailedAttempts }: BatchRecord): boolean {
  return numFailedAttempts > MAX_FAILED_ATTEMPTS;
}

function nullIfDamaged(error: unknown): null {
  if (error instanceof DamagedRecordError) return null;
  throw error;
}

function givenUp(numAttempts: number): BatchError {
  const message = `The batch could not be finished in ${numAttempts} attempts; the log of the service gives the reasons.`;
  return { code: "server_error", message, line: null, param: null };
}

function fruitless(numStarts: number): BatchError {
  const message = `The batch was started ${numStarts} times, and each time the server ended before a line was answered.`;
  return { code: "server_error", message, line: null, param: null };
}
