/** Runs a batch: passes lines on as fast as the engine accepts them, and writes each result when it is ready. */
import type { LineAnswer, PreparedLine } from "./answer-line.ts";
import { parseBatchLine, duplicateOf } from "./batch-line.ts";
import type { BadBatchLine, BatchLine, ParsedLine } from "./batch-line.ts";
import type { NumberedLine } from "./numbered-lines.ts";
import type { DoneLines, ResultSink } from "./result-file.ts";
import { errorLine, responseLine } from "./result-line.ts";
import type { LineResponse } from "./result-line.ts";
import { WindowShare } from "./window-share.ts";
import type { WorkWindow } from "./work-window.ts";

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
  /** Lines that have entered the window. */
  readonly #underWay = new Set<Promise<void>>();
  /** Resolves when the next of them is complete. */
  #completed = Promise.withResolvers<void>();
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
    // Lines that wait for another try, and those beside them.
    while (this.#underWay.size >= 2 * this.#options.window.maxWeight) await this.#completed.promise;
    const { window, stopping } = this.#options;
    if ((await window.memory?.tryEnter(numBytes, stopping.signal)) === false) return;
    const prepared = this.#options.prepare(line);
    if (!(await this.#share.enter(prepared.numSequences))) return window.memory?.leave(numBytes);
    const completed = this.#complete(line, prepared).finally(() => window.memory?.leave(numBytes));
    this.#underWay.add(completed);
    void completed.finally(() => {
      this.#underWay.delete(completed);
      this.#completed.resolve();
      this.#completed = Promise.withResolvers();
    });
    // Nothing else would slow down reading lines that cost the engine nothing.
    if (prepared.numSequences === 0) await completed;
  }

  /** Never rejects. */
  async #complete({ customId }: BatchLine, prepared: PreparedLine): Promise<void> {
    try {
      await this.#share.answer(prepared, (answered) => this.#use(customId, answered));
    } catch (cause) {
      this.#failure ??= { cause };
      this.#options.stopping.abort();
    }
  }

  async #use(customId: string, answered: LineAnswer): Promise<void> {
    if (answered.kind !== "given up") return this.#write(customId, answered.response);
    this.#numGivenUp += 1;
    this.#options.stopping.abort();
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
