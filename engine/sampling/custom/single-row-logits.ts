/** A row of a batch as a batch of one row. */
import type { Logits } from "../contract/logits-processor.ts";

export class SingleRowLogits implements Logits {
  readonly numRequests = 1;
  readonly data: Float32Array;
  readonly #before: Float32Array;

  /** Edits affect `row`. */
  constructor(row: Float32Array) {
    this.data = row;
    this.#before = Float32Array.from(row);
  }

  get vocabSize(): number {
    return this.data.length;
  }

  /** Whether any value has changed; NaN equals NaN. */
  get isChanged(): boolean {
    return this.data.some((value, index) => !Object.is(value, this.#before[index]));
  }

  row(index: number): Float32Array {
    if (index !== 0) throw new RangeError(`Row ${index} of logits with 1 row.`);
    return this.data;
  }
}
