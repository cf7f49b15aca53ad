/** Brings one batch to its end, or as far as it gets before it has to be released. */
import type { Service } from "../service.ts";
import { prepareLine } from "./answer-line.ts";
import type { AnswerDependencies } from "./answer-line.ts";
import { LINE_ROOM_BYTES } from "./batch-line.ts";
import { isFinal } from "./batch-record.ts";
import type { BatchError, BatchObject, BatchRecord } from "./batch-record.ts";
import type { BatchRecords } from "./batch-records.ts";
import { checkInput } from "./check-input.ts";
import type { JobOutcome } from "./job-queue.ts";
import { readLines } from "./numbered-lines.ts";
import type { NumberedLine } from "./numbered-lines.ts";
import { writeResultFiles } from "./result-files.ts";
import type { ResultLine } from "./result-line.ts";
import type { ResultLog, ResultLogs } from "./result-log.ts";
import { runBatch } from "./run-batch.ts";
import type { StoredFiles } from "./stored-files.ts";
import { startTicker } from "./ticker.ts";
import type { WorkWindow } from "./work-window.ts";

/** Of a batch whose lines end the server each time. */
const MAX_FRUITLESS_STARTS = 5;

export interface BatchRunnerOptions {
  readonly records: BatchRecords;
  readonly files: StoredFiles;
  readonly logs: ResultLogs;
  /** Shared by all batches of the process; asked for when lines are to be answered. */
  readonly window: () => WorkWindow;
  /** Its engine is ready when lines are to be answered. */
  readonly answer: Omit<AnswerDependencies, "tenant">;
  readonly maxNumLines: number;
  /** Of the body of a line. */
  readonly maxBodyBytes: number;
  /** How often the record is brought up to date, and looked whether the batch is cancelled or too old. */
  readonly tickMs: number;
  /** Milliseconds since 1970. */
  readonly now: () => number;
}

/** Work for a JobQueue; jobs are named as BatchRecords does. */
export async function runBatchJob(
  jobId: string,
  signal: AbortSignal,
  options: BatchRunnerOptions,
): Promise<JobOutcome> {
  const { records, logs } = options;
  const record = await records.readJob(jobId);
  if (record !== null && !isFinal(record.batch.status)) {
    const log = await logs.open(jobId);
    try {
      const outcome = await new BatchJob(jobId, record, log, options).run(signal);
      if (outcome === "released") return "released";
    } finally {
      await log.close();
    }
  }
  await logs.delete(jobId);
  await records.finishJob(jobId);
  return "finished";
}

/** Mutable. */
class BatchJob {
  readonly #jobId: string;
  readonly #log: ResultLog;
  readonly #options: BatchRunnerOptions;
  #record: BatchRecord;
  /** Answers that are kept, of all runs. */
  #numSucceeded: number;
  #numFailed: number;

  constructor(jobId: string, record: BatchRecord, log: ResultLog, options: BatchRunnerOptions) {
    this.#jobId = jobId;
    this.#record = record;
    this.#log = log;
    this.#options = options;
    this.#numSucceeded = log.done.numSucceeded;
    this.#numFailed = log.done.customIds.size - log.done.numSucceeded;
  }

  async run(signal: AbortSignal): Promise<JobOutcome> {
    await this.#noticeEnding();
    if (!this.#isEnding && this.#batch.status === "validating") await this.#validate();
    if (!this.#isEnding) await this.#answerLines(signal);
    if (!this.#isEnding) return "released";
    await this.#end();
    return "finished";
  }

  get #batch(): BatchObject {
    return this.#record.batch;
  }

  get #isEnding(): boolean {
    return this.#record.ending !== null;
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
    const lines = await this.#readInput();
    if (lines === null) return this.#fail([this.#inputIsGone()]);
    const { numLines, errors } = await checkInput(lines, {
      endpoint: this.#batch.endpoint,
      maxNumLines: this.#options.maxNumLines,
    });
    if (errors.length > 0) return this.#fail(errors);
    const requestCounts = { total: numLines, completed: 0, failed: 0 };
    await this.#update({ status: "in_progress", in_progress_at: this.#nowSeconds, request_counts: requestCounts });
  }

  /** The record says how the batch ends, unless lines are left for another start. */
  async #answerLines(signal: AbortSignal): Promise<void> {
    const { service } = this.#options.answer;
    if (service.state !== "ready") return;
    const { numFruitlessStarts } = this.#record;
    if (numFruitlessStarts >= MAX_FRUITLESS_STARTS) return this.#fail([fruitless(numFruitlessStarts)]);
    const lines = await this.#readInput();
    if (lines === null) return this.#fail([this.#inputIsGone()]);
    await this.#update({}, { numFruitlessStarts: numFruitlessStarts + 1 });

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
        onProgress() {},
      });
      await ticker.stop();
      if (isComplete) await this.#update({}, { ending: "completed" });
      // Released in order it does not count as a start that led to nothing; where its lines end the engine it does.
      else if (!this.#isEnding) await this.#showProgress(hasFailed(service) ? this.#record.numFruitlessStarts : 0);
    } finally {
      await ticker.stop();
      signal.removeEventListener("abort", stop);
    }
  }

  async #append(line: ResultLine): Promise<void> {
    await this.#log.append(line);
    const isSuccess = line.response?.status_code === 200;
    if (isSuccess) this.#numSucceeded += 1;
    else this.#numFailed += 1;
    this.#options.answer.metrics.countBatchLine(isSuccess ? "completed" : "failed");
  }

  async #tick(): Promise<void> {
    const { completed, failed } = this.#batch.request_counts;
    try {
      await this.#noticeEnding();
      if (completed + failed !== this.#numSucceeded + this.#numFailed) await this.#showProgress(0);
    } catch (error) {
      this.#options.answer.logger.warn("The state of a batch could not be kept; it is tried again.", {
        job: this.#jobId,
        error,
      });
    }
  }

  async #showProgress(numFruitlessStarts: number): Promise<void> {
    const { total } = this.#batch.request_counts;
    const requestCounts = { total, completed: this.#numSucceeded, failed: this.#numFailed };
    await this.#update({ request_counts: requestCounts }, { numFruitlessStarts });
  }

  async #fail(errors: readonly BatchError[]): Promise<void> {
    await this.#update({ errors: { object: "list", data: [...errors] } }, { ending: "failed" });
  }

  /** Writes the files of results and closes the record. */
  async #end(): Promise<void> {
    const { ending } = this.#record;
    if (ending === null) return;
    if (ending === "completed" || ending === "expired") {
      await this.#update({ status: "finalizing", finalizing_at: this.#nowSeconds });
    }
    await this.#log.close();
    const unanswered = ending === "expired" && this.#batch.in_progress_at !== null ? await this.#readInput() : null;
    const results = await writeResultFiles(this.#record, { log: this.#log, input: unanswered }, this.#options.files);
    const { total } = this.#batch.request_counts;
    await this.#update({
      status: ending,
      [`${ending}_at`]: this.#nowSeconds,
      output_file_id: results.outputFileId,
      error_file_id: results.errorFileId,
      request_counts: { total, completed: results.numSucceeded, failed: results.numFailed },
      usage: results.usage,
    });
    this.#options.answer.metrics.countBatch(ending);
  }

  /** Null where the file was deleted. */
  async #readInput(): Promise<AsyncIterable<NumberedLine> | null> {
    const input = await this.#options.files.read(this.#record.tenant, this.#batch.input_file_id);
    return input === null ? null : readLines(input.chunks, this.#options.maxBodyBytes + LINE_ROOM_BYTES);
  }

  #inputIsGone(): BatchError {
    const message = `The input file ${this.#batch.input_file_id} was deleted before the batch was done.`;
    return { code: "input_file_deleted", message, line: null, param: "input_file_id" };
  }
}

/** Asked anew: the state may have changed since the lines were begun. */
function hasFailed({ state }: Service): boolean {
  return state === "failed" || state === "stalled";
}

function fruitless(numStarts: number): BatchError {
  const message = `The batch was begun ${numStarts} times, and each time the server ended before a line was answered.`;
  return { code: "server_error", message, line: null, param: null };
}
