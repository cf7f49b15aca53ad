/** The logits of packed runs, which stay where they are computed, and the likeliest tokens of each row. */
import type { DecoderGraph } from "../models/built-model.ts";
import { Tensor } from "../runtime/tensor.ts";
import type { DeferredLogits } from "../sampling/step-logits.ts";
import type { DecoderBinding } from "./decoder-binding.ts";

/** Rows for a run whose logits nobody samples, or whose logits go elsewhere. Prompt logprobs take 32 at a time. */
const NUM_SPARE_ROWS = 32;

/** Mutable: memory for the rows of one step. Each run of a step writes rows of its own. */
export class RunLogits {
  readonly #vocabSize: number;
  readonly #numCandidates: number;
  readonly #maxRows: number;
  /** Row-major [maxRows + NUM_SPARE_ROWS, vocabSize]. */
  readonly #logits: Float32Array;
  /** Row-major [maxRows + NUM_SPARE_ROWS, numCandidates]. */
  readonly #candidateLogits: Float32Array;
  readonly #candidateIds: Int32Array;
  /** [maxRows + NUM_SPARE_ROWS] */
  readonly #masses: Float32Array;
  /** The rows that are bound; usually those of the step before. */
  #bound = "";

  constructor({ vocabSize, numCandidates }: DecoderGraph, maxRows: number) {
    const numRows = maxRows + NUM_SPARE_ROWS;
    this.#vocabSize = vocabSize;
    this.#numCandidates = numCandidates;
    this.#maxRows = maxRows;
    this.#logits = new Float32Array(numRows * vocabSize);
    this.#candidateLogits = new Float32Array(numRows * numCandidates);
    this.#candidateIds = new Int32Array(numRows * numCandidates);
    this.#masses = new Float32Array(numRows);
  }

  /** The next run writes rows of the step from `firstRow` on. */
  bindStepRows(binding: DecoderBinding, firstRow: number, numRows: number): void {
    this.#bind(binding, firstRow, numRows, null);
  }

  /** The next run writes its logits into `logits`, or nowhere if that is empty. */
  bindOtherRows(binding: DecoderBinding, logits: Float32Array): void {
    const numRows = logits.length / this.#vocabSize;
    if (numRows === 0) this.#bind(binding, this.#maxRows, 1, null);
    else this.#bind(binding, this.#maxRows, numRows, logits);
  }

  /** The rows of the step from `firstRow` on. Valid until the next step. */
  deferred(firstRow: number): DeferredLogits {
    return {
      candidatesOf: (rowIndex) => {
        const start = (firstRow + rowIndex) * this.#numCandidates;
        const end = start + this.#numCandidates;
        return {
          values: this.#candidateLogits.subarray(start, end),
          tokenIds: this.#candidateIds.subarray(start, end),
          mass: this.#masses[firstRow + rowIndex],
          isWholeRow: this.#numCandidates === this.#vocabSize,
        };
      },
      read: (rowIndex, row) => {
        const start = (firstRow + rowIndex) * this.#vocabSize;
        row.set(this.#logits.subarray(start, start + this.#vocabSize));
      },
    };
  }

  #bind(binding: DecoderBinding, firstRow: number, numRows: number, logits: Float32Array | null): void {
    const rows = `${firstRow}+${numRows}`;
    if (logits === null && rows === this.#bound) return;
    this.#bound = logits === null ? rows : "";
    const [vocabSize, numCandidates, endRow] = [this.#vocabSize, this.#numCandidates, firstRow + numRows];
    const ownLogits = this.#logits.subarray(firstRow * vocabSize, endRow * vocabSize);
    const values = this.#candidateLogits.subarray(firstRow * numCandidates, endRow * numCandidates);
    const ids = this.#candidateIds.subarray(firstRow * numCandidates, endRow * numCandidates);
    const masses = this.#masses.subarray(firstRow, endRow);
    binding.setOutput("logits", Tensor.fromTypedArray("float32", logits ?? ownLogits, [numRows, vocabSize]));
    binding.setOutput("candidate_logits", Tensor.fromTypedArray("float32", values, [numRows, numCandidates]));
    binding.setOutput("candidate_ids", Tensor.fromTypedArray("int32", ids, [numRows, numCandidates]));
    binding.setOutput("mass", Tensor.fromTypedArray("float32", masses, [numRows]));
  }
}
