/** The memory of one step's logits, with row views that are created once. */
import { LogitsKernel } from "./logits-kernel.ts";
import type { Logits } from "./contract/logits-processor.ts";

/** Mutable: `numRequests` is set before each step. */
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
  }

  get numRequests(): number {
    return this.#numRequests;
  }

  set numRequests(numRequests: number) {
    if (numRequests === this.#numRequests) return;
    this.#numRequests = numRequests;
    this.#data = this.buffer.subarray(0, numRequests * this.vocabSize);
  }

  get data(): Float32Array {
    return this.#data;
  }

  row(index: number): Float32Array {
    if (!(index >= 0 && index < this.#numRequests)) {
      throw new RangeError(`Row ${index} of logits with ${this.#numRequests} rows.`);
    }
    return this.#rows[index];
  }
}
