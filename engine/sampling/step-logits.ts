/** The memory of one step's logits, with row views that are created once. */
import type { Logits } from "./contract/logits-processor.ts";
import type { Candidates } from "./draw/candidate-draw.ts";
import { LogitsKernel } from "./logits-kernel.ts";

/** Logits of a run that are still where they were computed. Valid until the next run. */
export interface DeferredLogits {
  /** @param rowIndex Index in the run. */
  candidatesOf(rowIndex: number): Candidates;
  /** Copies rows of the run from `rowIndex` on into `rows`, row-major [numRows, vocabSize]. */
  read(rowIndex: number, rows: Float32Array): void;
}

interface DeferredRow {
  readonly logits: DeferredLogits;
  /** Index in the run. */
  readonly rowIndex: number;
}

/** Mutable: `numRequests` is set before each step. A deferred row is read on first access, or by `read` before. */
export class StepLogits implements Logits {
  readonly maxNumRequests: number;
  readonly vocabSize: number;
  /** Its memory contains the rows. */
  readonly kernel: LogitsKernel;
  /** Row-major [maxNumRequests, vocabSize]. */
  readonly buffer: Float32Array;
  readonly #rows: readonly Float32Array[];
  #data: Float32Array;
  #numRequests = 0;
  /** By row; null for a row that lies in `buffer`. */
  readonly #deferred: (DeferredRow | null)[];

  /** @throws EngineError `invalid_configuration` if that many rows do not fit into one memory. */
  constructor(maxNumRequests: number, vocabSize: number) {
    this.maxNumRequests = maxNumRequests;
    this.vocabSize = vocabSize;
    this.kernel = new LogitsKernel(maxNumRequests, vocabSize);
    this.buffer = this.kernel.logits;
    this.#rows = Array.from({ length: maxNumRequests }, (_, index) =>
      this.buffer.subarray(index * vocabSize, (index + 1) * vocabSize),
    );
    this.#data = this.buffer.subarray(0, 0);
    this.#deferred = Array.from({ length: maxNumRequests }, () => null);
  }

  get numRequests(): number {
    return this.#numRequests;
  }

  /** No row is deferred afterwards. */
  set numRequests(numRequests: number) {
    this.#deferred.fill(null);
    if (numRequests === this.#numRequests) return;
    this.#numRequests = numRequests;
    this.#data = this.buffer.subarray(0, numRequests * this.vocabSize);
  }

  get data(): Float32Array {
    this.read(() => true);
    return this.#data;
  }

  row(index: number): Float32Array {
    if (!(index >= 0 && index < this.#numRequests)) {
      throw new RangeError(`Row ${index} of logits with ${this.#numRequests} rows.`);
    }
    if (this.isDeferred(index)) this.#readRun(index, index + 1);
    return this.#rows[index]!;
  }

  /** Row-major [numRows, vocabSize]: where a run writes rows that it does not defer. */
  rowsFrom(firstRow: number, numRows: number): Float32Array {
    return this.buffer.subarray(firstRow * this.vocabSize, (firstRow + numRows) * this.vocabSize);
  }

  /** Leaves `numRows` rows from `firstRow` on where a run has computed them. */
  defer(firstRow: number, numRows: number, logits: DeferredLogits): void {
    for (let rowIndex = 0; rowIndex < numRows; rowIndex++) this.#deferred[firstRow + rowIndex] = { logits, rowIndex };
  }

  /** Reads the deferred ones of the wanted rows: one copy for neighbours that one run has computed. */
  read(isWanted: (index: number) => boolean): void {
    for (let first = 0; first < this.#numRequests; first++) {
      let end = first;
      while (end < this.#numRequests && this.#isNeighbour(first, end) && isWanted(end)) end++;
      if (end === first) continue;
      this.#readRun(first, end);
      first = end - 1;
    }
  }

  isDeferred(index: number): boolean {
    return this.#deferred[index] !== null;
  }

  /** Null for a row that was read, and may have been edited since. */
  candidatesOf(index: number): Candidates | null {
    const row = this.#deferred[index] ?? null;
    return row === null ? null : row.logits.candidatesOf(row.rowIndex);
  }

  /** Whether both rows are deferred, and as far apart as in the run that has computed both. */
  #isNeighbour(first: number, index: number): boolean {
    const firstRow = this.#deferred[first] ?? null;
    const row = this.#deferred[index] ?? null;
    if (firstRow === null || row === null) return false;
    return row.logits === firstRow.logits && row.rowIndex - firstRow.rowIndex === index - first;
  }

  /** All rows are neighbours. */
  #readRun(first: number, end: number): void {
    const { logits, rowIndex } = this.#deferred[first]!;
    logits.read(rowIndex, this.rowsFrom(first, end - first));
    this.#deferred.fill(null, first, end);
  }
}
