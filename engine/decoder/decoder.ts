/** Computes tokens: a decoder's session together with the keys and values of the KV slots. */
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
  /** The largest number of neighbouring slots that one run decodes together. */
  readonly maxSlotsPerRun: number;
  /** Whether kept tokens can be moved between slots. */
  readonly canTransfer: boolean;
  transfer(transfer: SlotTransfer): void;
  /**
   * Computes the prompt's tokens from `firstToken` up to, but not including, `endToken`. `logits` [numRows, vocabSize]
   * receives the predictions of the last `numRows` tokens; an empty array computes none. Throws EngineError
   * `runtime_failed`.
   */
  prefill(
    sequence: Sequence,
    firstToken: number,
    endToken: number,
    embeddings: ChunkEmbeddings,
    logits: Float32Array,
  ): void;
  /**
   * Computes the newest token of `sequences`, which all belong to this range. Writes their next logits into consecutive
   * rows, starting at `firstRow`. Throws EngineError `runtime_failed`.
   */
  decode(range: SlotRange, sequences: readonly Sequence[], logits: StepLogits, firstRow: number): void;
}
