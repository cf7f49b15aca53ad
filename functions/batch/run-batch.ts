/** Runs a batch: passes lines on as fast as the engine accepts them, and writes each result when it is ready. */
import { setTimeout as sleep } from "node:timers/promises";

import type { Logger } from "../logger.ts";
import type { LineAnswer, PreparedLine } from "./answer-line.ts";
import { parseBatchLine, duplicateOf } from "./batch-line.ts";
import type { BadBatchLine, BatchLine, ParsedLine } from "./batch-line.ts";
import type { NumberedLine } from "./numbered-lines.ts";
import type { DoneLines, ResultSink } from "./result-file.ts";
import { errorLine, responseLine } from "./result-line.ts";
import type { LineResponse } from "./result-line.ts";
import { WindowShare } from "./window-share.ts";
import type { WorkWindow } from "./work-window.ts";

/**
 * Bytes of the lines that wait for a host or a store to work again. They are not in the window, so that other work
 * passes them. A batch with more of them reads on when some of them have a result.
 */
const MAX_PAUSED_BYTES = 16 * 1024 * 1024;

export interface LineRetries {
  /** Pause before the second try of a line. It doubles with each further try. */
  readonly firstMs: number;
  readonly mostMs: number;
  /** The answer of the last one is final. */
  readonly maxNumTries: number;
}

/** About an hour, so that a host that is gone for good does not keep a batch for its whole window. */
const defaultRetries: LineRetries = { firstMs: 5_000, mostMs: 600_000, maxNumTries: 12 };

export interface BatchOptions {
  readonly lines: AsyncIterable<NumberedLine>;
  /** Results of earlier runs. */
  readonly done: DoneLines;
  readonly results: ResultSink;
  readonly prepare: (line: BatchLine) => PreparedLine;
  /**
   * Limits the sequences in progress and the bytes of lines in memory, including those of other batches. A line with more
   * sequences runs alone.
   */
  readonly window: WorkWindow;
  /**
   * Aborted by the caller, or by the run if a result cannot be written or the service has ended. Then no more lines are
   * started, and those in progress are awaited. `lines` may throw after the abort.
   */
  readonly stopping: AbortController;
  /** Tries of a line whose picture cannot be fetched for now. Default: for about an hour. */
  readonly retries?: LineRetries;
  readonly logger: Pick<Logger, "warn">;
  /** Called with each line of the input in order, including lines that already have a result. */
  readonly onLine?: (line: ParsedLine) => void;
  /** Called when another line is finished; `counts` are those of this run. */
  readonly onProgress: (numLines: number, counts: Readonly<Counts>) => void;
}

/** Numbers of lines of a run. */
export interface Counts {
  /** With status 200. */
  numSucceeded: number;
  /** With another status. */
  numFailed: number;
  /** Invalid lines. */
  numBad: number;
  /** Lines finished by an earlier run. */
  numSkipped: number;
}

export interface BatchSummary extends Readonly<Counts> {
  /** Whether no line is left. */
  readonly isComplete: boolean;
}

/** Rejects if the lines cannot be read or a result cannot be written, once nothing is in progress any more. */
export async function runBatch(options: BatchOptions): Promise<BatchSummary> {
  return new BatchRun(options).run();
}

/** Mutable. */
class BatchRun {
  readonly #options: BatchOptions;
  readonly #share: WindowShare;
  /** Lines that have entered the window, and those that pause after it. */
  readonly #underWay = new Set<Promise<void>>();
  #numPaused = 0;
  #pausedBytes = 0;
  #hasToldOfPause = false;
  /** Resolves when the next of them is complete or pauses. */
  #moved = Promise.withResolvers<void>();
  /** All valid lines so far by custom_id: the number of the first line that has it. */
  readonly #lineNumbers = new Map<string, number>();
  /** Why a result could not be written. */
  #failure: { readonly cause: unknown } | null = null;
  #numGivenUp = 0;
  readonly #counts: Counts = { numSucceeded: 0, numFailed: 0, numBad: 0, numSkipped: 0 };

  constructor(options: BatchOptions) {
    this.#options = options;
    this.#share = new WindowShare(options.window, options.stopping.signal);
  }

  async run(): Promise<BatchSummary> {
    let hasReadAll = false;
    try {
      await this.#takeLines();
      hasReadAll = !this.#isStopping;
    } catch (error) {
      if (!this.#isStopping) throw error;
    } finally {
      await Promise.all(this.#underWay);
    }
    if (this.#failure !== null) throw this.#failure.cause;
    return { ...this.#counts, isComplete: hasReadAll && this.#numGivenUp === 0 };
  }

  async #takeLines(): Promise<void> {
    for await (const numbered of this.#options.lines) {
      if (this.#isStopping) return;
      const line = parseBatchLine(numbered);
      this.#options.onLine?.(line);
      if (line.kind === "bad") await this.#report(line);
      else await this.#begin(line, Buffer.byteLength(numbered.text));
    }
  }

  get #isStopping(): boolean {
    return this.#options.stopping.signal.aborted;
  }

  async #begin(line: BatchLine, numBytes: number): Promise<void> {
    const firstLineNumber = this.#lineNumbers.get(line.customId);
    if (firstLineNumber !== undefined) return this.#report(duplicateOf(line, firstLineNumber));
    this.#lineNumbers.set(line.customId, line.lineNumber);
    if (this.#options.done.customIds.has(line.customId)) return this.#count("numSkipped");
    while (!this.#hasRoom) await this.#moved.promise;
    const prepared = await this.#enter(line, numBytes);
    if (prepared === null) return;
    const completed = this.#complete(line, numBytes, prepared);
    this.#underWay.add(completed);
    void completed.finally(() => {
      this.#underWay.delete(completed);
      this.#notify();
    });
    // Nothing else would slow down reading lines that cost the engine nothing.
    if (prepared.numSequences === 0) await completed;
  }

  /** Whether another line may be taken, beside those that the engine has rejected and those that pause. */
  get #hasRoom(): boolean {
    const numWorking = this.#underWay.size - this.#numPaused;
    return numWorking < 2 * this.#options.window.maxWeight && this.#pausedBytes < MAX_PAUSED_BYTES;
  }

  #notify(): void {
    this.#moved.resolve();
    this.#moved = Promise.withResolvers();
  }

  /** Null if the run is stopped first; then the line is outside. */
  async #enter(line: BatchLine, numBytes: number): Promise<PreparedLine | null> {
    const { window, stopping, prepare } = this.#options;
    if ((await window.memory?.tryEnter(numBytes, stopping.signal)) === false) return null;
    const prepared = prepare(line);
    if (await this.#share.enter(prepared.numSequences)) return prepared;
    window.memory?.leave(numBytes);
    return null;
  }

  /** Never rejects. */
  async #complete(line: BatchLine, numBytes: number, first: PreparedLine): Promise<void> {
    const { window, stopping, retries = defaultRetries } = this.#options;
    try {
      let prepared: PreparedLine | null = first;
      let pauseMs = retries.firstMs;
      for (let numTries = 1; prepared !== null; numTries += 1) {
        const isLastTry = numTries >= retries.maxNumTries;
        const use = (answered: LineAnswer): Promise<boolean> => this.#use(line.customId, answered, isLastTry);
        const isDone: boolean = await this.#share.answer(prepared, use).finally(() => window.memory?.leave(numBytes));
        if (isDone) return;
        this.#tellOfPause(line.customId, pauseMs);
        await this.#pause(pauseMs, numBytes);
        pauseMs = Math.min(2 * pauseMs, retries.mostMs);
        prepared = this.#isStopping ? null : await this.#enter(line, numBytes);
      }
      this.#numGivenUp += 1;
    } catch (cause) {
      this.#failure ??= { cause };
      stopping.abort();
    }
  }

  /** Once: all lines of a batch may name pictures of the same place. */
  #tellOfPause(customId: string, afterMs: number): void {
    if (this.#hasToldOfPause) return;
    this.#hasToldOfPause = true;
    const message = "A picture of a line cannot be fetched for now. Lines with such pictures are tried again.";
    this.#options.logger.warn(message, { customId, afterMs });
  }

  /** Also ends when the run is stopped. */
  async #pause(pauseMs: number, numBytes: number): Promise<void> {
    this.#numPaused += 1;
    this.#pausedBytes += numBytes;
    this.#notify();
    await sleep(pauseMs, null, { signal: this.#options.stopping.signal }).catch(() => {});
    this.#numPaused -= 1;
    this.#pausedBytes -= numBytes;
  }

  /** False for a line that is to be tried again. */
  async #use(customId: string, answered: LineAnswer, isLastTry: boolean): Promise<boolean> {
    if (answered.kind === "given up") {
      this.#numGivenUp += 1;
      this.#options.stopping.abort();
      return true;
    }
    if (answered.kind === "answered" && answered.isTransient === true && !isLastTry) return false;
    await this.#write(customId, answered.response);
    return true;
  }

  async #write(customId: string, response: LineResponse): Promise<void> {
    await this.#options.results.append(responseLine(customId, response));
    this.#count(response.statusCode === 200 ? "numSucceeded" : "numFailed");
  }

  async #report(line: BadBatchLine): Promise<void> {
    if (this.#options.done.badLines.has(line.lineNumber)) return this.#count("numSkipped");
    await this.#options.results.append(errorLine(line));
    this.#count("numBad");
  }

  #count(kind: keyof Counts): void {
    this.#counts[kind] += 1;
    const { numSucceeded, numFailed, numBad, numSkipped } = this.#counts;
    this.#options.onProgress(numSucceeded + numFailed + numBad + numSkipped, this.#counts);
  }
}
