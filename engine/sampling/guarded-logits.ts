/** One step's logits for logits processors: a row is prepared and copied on first access. */
import type { Logits } from "./contract/logits-processor.ts";
import type { StepLogits } from "./step-logits.ts";

/**
 * Mutable. Rows that are not accessed cost nothing, so an unused processor costs nothing. After `guard`, a row is
 * copied before it is handed out, so that the edits of a failed processor can be undone.
 */
export class GuardedLogits implements Logits {
  readonly #logits: StepLogits;
  /** Called at least once before a row is handed out. `wasDeferred`: the row was read for this. */
  readonly #prepareRow: (rowIndex: number, wasDeferred: boolean) => void;
  /** By row: its values when the guarded processor accessed it; valid while `#isKept`. */
  readonly #copies: Float32Array[] = [];
  /** By row. */
  readonly #isKept: Uint8Array;
  /** By row: the guarded processors that accessed it in this step. */
  readonly #askers: string[][];
  /** Name of the guarded processor, or null. */
  #guarded: string | null = null;

  constructor(logits: StepLogits, prepareRow: (rowIndex: number, wasDeferred: boolean) => void) {
    this.#logits = logits;
    this.#prepareRow = prepareRow;
    this.#isKept = new Uint8Array(logits.maxNumRequests);
    this.#askers = Array.from({ length: logits.maxNumRequests }, () => []);
  }

  get numRequests(): number {
    return this.#logits.numRequests;
  }

  get vocabSize(): number {
    return this.#logits.vocabSize;
  }

  get data(): Float32Array {
    const wasDeferred = Array.from({ length: this.numRequests }, (_, rowIndex) => this.#logits.isDeferred(rowIndex));
    const { data } = this.#logits;
    for (let rowIndex = 0; rowIndex < wasDeferred.length; rowIndex++) this.#open(rowIndex, wasDeferred[rowIndex]!);
    return data;
  }

  row(index: number): Float32Array {
    return this.#open(index, this.#logits.isDeferred(index));
  }

  /** Whether the row's logits are elsewhere. Accessing the row reads them. */
  isDeferred(index: number): boolean {
    return this.#logits.isDeferred(index);
  }

  /** Forgets the accesses of the previous step. */
  beginStep(): void {
    for (const askers of this.#askers) if (askers.length > 0) askers.length = 0;
  }

  /** Names of the guarded processors that accessed the row in this step, in order. */
  askersOf(index: number): readonly string[] {
    return this.#askers[index]!;
  }

  /** From here until the next call of either method, rows that are handed out can be restored. */
  guard(processorName: string): void {
    this.#guarded = processorName;
    this.#isKept.fill(0);
  }

  unguard(): void {
    this.#guarded = null;
  }

  restoreRow(index: number): void {
    if (this.#isKept[index] === 1) this.#logits.row(index).set(this.#copies[index]!);
  }

  restore(): void {
    for (let rowIndex = 0; rowIndex < this.numRequests; rowIndex++) this.restoreRow(rowIndex);
  }

  #open(index: number, wasDeferred: boolean): Float32Array {
    const row = this.#logits.row(index);
    this.#prepareRow(index, wasDeferred);
    if (this.#guarded !== null && this.#isKept[index] === 0) {
      this.#isKept[index] = 1;
      this.#askers[index]!.push(this.#guarded);
      (this.#copies[index] ??= new Float32Array(row.length)).set(row);
    }
    return row;
  }
}
