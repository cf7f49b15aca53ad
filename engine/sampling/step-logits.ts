/** The memory of one step's logits, with row views that are created once. */
import type { Logits } from "./contract/logits-processor.ts";
import type { Candidates } from "./draw/candidate-draw.ts";
import { LogitsKernel } from "./logits-kernel.ts";

/** Logits of a run that are still where they were computed. Valid until the next run. */
export interface DeferredLogits {
  /** @param rowIndex Index in the run. */
  candidatesOf(rowIndex: number): Candidates;
  /** Copies a row of the run into `row`, [vocabSize]. */
  read(rowIndex: number, row: Float32Array): void;
}

interface DeferredRow {
  readonly logits: DeferredLogits;
  /** Index in the run. */
  readonly rowIndex: number;
}

/** Mutable: `numRequests` is set before each step. A deferred row is read on first access. */
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
    for (let index = 0; index < this.#numRequests; index++) this.#readDeferred(index);
    return this.#data;
  }

  row(index: number): Float32Array {
    if (!(index >= 0 && index < this.#numRequests)) {
      throw new RangeError(`Row ${index} of logits with ${this.#numRequests} rows.`);
    }
    this.#readDeferred(index);
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

  isDeferred(index: number): boolean {
    return this.#deferred[index] !== null;
  }

  /** Null for a row that was read, and may have been edited since. */
  candidatesOf(index: number): Candidates | null {
    const row = this.#deferred[index] ?? null;
    return row === null ? null : row.logits.candidatesOf(row.rowIndex);
  }

  #readDeferred(index: number): void {
    const row = this.#deferred[index] ?? null;
    if (row === null) return;
    row.logits.read(row.rowIndex, this.#rows[index]!);
    this.#deferred[index] = null;
  }
}
