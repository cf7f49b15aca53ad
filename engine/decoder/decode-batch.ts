/** One-token steps of neighbouring KV slots as one ragged batch. The input arrays are written in place. */
import type { DecoderGraph } from "../models/built-model.ts";
import type { StepLogits } from "../sampling/step-logits.ts";
import { Tensor } from "../runtime/tensor.ts";
import { DecoderRun } from "./decoder-run.ts";
import type { KvSlots } from "../kv/kv-slots.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import type { SlotRange } from "../kv/slot-ranges.ts";
import { outputPosition } from "./token-positions.ts";

/** Mutable. */
export class DecodeBatch implements Disposable {
  readonly #run: DecoderRun;
  readonly #vocabSize: number;
  readonly #firstSlot: number;
  /** [numSlots] */
  readonly #inputIds: BigInt64Array;
  /** [numSlots] */
  readonly #sequenceLengths: Int32Array;
  /** [] */
  readonly #totalLength = new Int32Array(1);
  /** [numSlots]; the first `numRows` are in use. */
  readonly #logitRows: BigInt64Array;
  /** [3, numSlots]; null if the graph computes positions itself. */
  readonly #positions: BigInt64Array | null;
  #firstRow = -1;
  #numRows = -1;

  /** Takes ownership of `run`, which is bound to the slots of the range. */
  constructor(run: DecoderRun, graph: DecoderGraph, { firstSlot, numSlots }: SlotRange) {
    this.#run = run;
    this.#vocabSize = graph.vocabSize;
    this.#firstSlot = firstSlot;
    this.#inputIds = new BigInt64Array(numSlots);
    this.#sequenceLengths = new Int32Array(numSlots);
    this.#logitRows = new BigInt64Array(numSlots);
    this.#positions = graph.takesPositions ? new BigInt64Array(3 * numSlots) : null;
    run.setInput("input_ids", Tensor.fromTypedArray("int64", this.#inputIds, [numSlots, 1]));
    run.setInput("seqlens_k", Tensor.fromTypedArray("int32", this.#sequenceLengths, [numSlots]));
    run.setInput("total_sequence_length", Tensor.fromTypedArray("int32", this.#totalLength, []));
    if (this.#positions !== null) {
      run.setInput("positions", Tensor.fromTypedArray("int64", this.#positions, [3, numSlots]));
    }
    if (!graph.acceptsImages) return;
    run.setInput("image_embeds", Tensor.fromTypedArray("float32", new Float32Array(0), [0, graph.hiddenSize]));
    run.setInput("image_positions", Tensor.fromTypedArray("int64", new BigInt64Array(0), [0, 1]));
  }

  /**
   * Computes the newest token of `sequences`, which all belong to this range. Writes their next logits into consecutive
   * rows, starting at `firstRow`. Every slot of the range writes a token at the position after its kept tokens; slots
   * that do not decode write there as well, and those values are never read.
   */
  decode(sequences: readonly Sequence[], kvSlots: KvSlots, logits: StepLogits, firstRow: number): void {
    let longest = 0;
    for (let index = 0; index < this.#inputIds.length; index++) {
      const numKept = kvSlots.numKeptTokens(this.#firstSlot + index);
      this.#inputIds[index] = 0n;
      this.#sequenceLengths[index] = numKept;
      if (numKept > longest) longest = numKept;
    }
    this.#totalLength[0] = longest + 1;
    for (let row = 0; row < sequences.length; row++) {
      const { kvSlot, outputTokenIds } = sequences[row];
      const index = kvSlot! - this.#firstSlot;
      this.#inputIds[index] = BigInt(outputTokenIds[outputTokenIds.length - 1]);
      this.#logitRows[row] = BigInt(index);
      if (this.#positions !== null) this.#setPosition(this.#positions, index, sequences[row], kvSlots);
    }
    this.#bindRows(firstRow, sequences.length, logits);
    this.#run.run();
    for (const { kvSlot } of sequences) kvSlots.setNumKeptTokens(kvSlot!, kvSlots.numKeptTokens(kvSlot!) + 1);
  }

  [Symbol.dispose](): void {
    this.#run[Symbol.dispose]();
  }

  /** The rows are usually those of the step before and already bound. */
  #bindRows(firstRow: number, numRows: number, { buffer }: StepLogits): void {
    if (firstRow === this.#firstRow && numRows === this.#numRows) return;
    const vocabSize = this.#vocabSize;
    const rows = buffer.subarray(firstRow * vocabSize, (firstRow + numRows) * vocabSize);
    this.#run.setInput("logit_rows", Tensor.fromTypedArray("int64", this.#logitRows.subarray(0, numRows), [numRows]));
    this.#run.setLogits(Tensor.fromTypedArray("float32", rows, [numRows, vocabSize]));
    this.#firstRow = firstRow;
    this.#numRows = numRows;
  }

  #setPosition(positions: BigInt64Array, index: number, sequence: Sequence, kvSlots: KvSlots): void {
    const position = outputPosition(sequence, kvSlots.numKeptTokens(sequence.kvSlot!));
    const numSlots = this.#inputIds.length;
    for (let axis = 0; axis < 3; axis++) positions[axis * numSlots + index] = position;
  }
}
