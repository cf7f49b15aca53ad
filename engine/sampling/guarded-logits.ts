/** One step's logits as logits processors see them: a row is prepared and kept aside when it is first asked for. */
import type { Logits } from "./contract/logits-processor.ts";
import type { StepLogits } from "./step-logits.ts";

/**
 * Mutable. Rows nobody asks for cost nothing, which is what a processor that no request uses is to cost. A copy of a
 * row is kept from `guard` on, so that the edits of a processor that fails can be taken back.
 */
export class GuardedLogits implements Logits {
  readonly #logits: StepLogits;
  /** Called before a row is handed out, once or more often. `wasDeferred`: the row was read for this. */
  readonly #prepareRow: (rowIndex: number, wasDeferred: boolean) => void;
  /** By row: its values when the guarded processor asked for it, of meaning while `#isKept`. */
  readonly #copies: Float32Array[] = [];
  /** By row. */
  readonly #isKept: Uint8Array;
  /** By row: the guarded processors that asked for it in this step. */
  readonly #askers: string[][];
  /** Null while nobody is guarded against. */
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
    for (let rowIndex = 0; rowIndex < this.numRequests; rowIndex++) this.row(rowIndex);
    return this.#logits.data;
  }

  row(index: number): Float32Array {
    const wasDeferred = this.#logits.isDeferred(index);
    const row = this.#logits.row(index);
    this.#prepareRow(index, wasDeferred);
    if (this.#guarded !== null && this.#isKept[index] === 0) {
      this.#isKept[index] = 1;
      this.#askers[index].push(this.#guarded);
      (this.#copies[index] ??= new Float32Array(row.length)).set(row);
    }
    return row;
  }

  /** Whether the row's logits are elsewhere. Asking for the row reads them. */
  isDeferred(index: number): boolean {
    return this.#logits.isDeferred(index);
  }

  /** Forgets who asked for rows in the step before. */
  beginStep(): void {
    for (const askers of this.#askers) if (askers.length > 0) askers.length = 0;
  }

  /** Names of the processors that were given the row in this step while guarded, in their order. */
  askersOf(index: number): readonly string[] {
    return this.#askers[index];
  }

  /** From here on, up to the next call of either, rows that are handed out to the processor can be restored. */
  guard(processorName: string): void {
    this.#guarded = processorName;
    this.#isKept.fill(0);
  }

  unguard(): void {
    this.#guarded = null;
  }

  restoreRow(index: number): void {
    if (this.#isKept[index] === 1) this.#logits.row(index).set(this.#copies[index]);
  }

  restore(): void {
    for (let rowIndex = 0; rowIndex < this.numRequests; rowIndex++) this.restoreRow(rowIndex);
  }
}
