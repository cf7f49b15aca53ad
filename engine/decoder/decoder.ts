/** What computes tokens: a decoder's session with the keys and values of the KV slots, in whatever form they are kept. */
import type { StepLogits } from "../sampling/step-logits.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import type { SlotRange } from "../kv/slot-ranges.ts";
import type { SlotTransfer } from "../kv/slot-transfer.ts";

/** Embeddings that replace tokens of a prompt chunk. */
export interface ChunkEmbeddings {
  /** Row-major [positions.length, hiddenSize]. */
  readonly embeddings: Float32Array;
  /** Indices into the chunk. */
  readonly positions: BigInt64Array;
}

export interface Decoder extends Disposable {
  /** Most neighbouring slots that one run decodes together. */
  readonly maxSlotsPerRun: number;
  /** Whether what slots keep can be brought to other slots. */
  readonly canTransfer: boolean;
  transfer(transfer: SlotTransfer): void;
  /**
   * Computes the prompt's tokens from `firstToken` up to `endToken`, exclusive. `logits`, [numRows, vocabSize], receives
   * what the last `numRows` of them predict; an empty array computes none. Throws EngineError `runtime_failed`.
   */
  prefill(
    sequence: Sequence,
    firstToken: number,
    endToken: number,
    embeddings: ChunkEmbeddings,
    logits: Float32Array,
  ): void;
  /**
   * Computes the newest token of `sequences`, all of this range, and writes their next logits into rows `firstRow` and
   * following. Throws EngineError `runtime_failed`.
   */
  decode(range: SlotRange, sequences: readonly Sequence[], logits: StepLogits, firstRow: number): void;
}
