/** One-token steps of neighbouring KV slots as one ragged batch. The input arrays are written in place. */
import type { KvSlots, SlotRange } from "../kv/kv-slots.ts";
import type { DecoderGraph } from "../models/built-model.ts";
import { outputWidthOf } from "../models/decoder-shape.ts";
import { Tensor } from "../runtime/tensor.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import { AdapterInputs } from "./adapter-inputs.ts";
import type { DecoderBinding } from "./decoder-binding.ts";
import type { TokenSpan } from "./decoder.ts";
import { outputPosition } from "./token-positions.ts";

/** Mutable. */
export class DecodeBatch implements Disposable {
  readonly #run: DecoderBinding;
  readonly #width: number;
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
  /** [numSlots]: 1 for slots that decode; null without recurrent layers. */
  readonly #updatesState: Uint8Array | null;
  /** Null without adapters. */
  readonly #adapters: AdapterInputs | null;
  /** The rows that are bound; null before the first run. */
  #logits: Float32Array | null = null;

  /** Takes ownership of `run`, which is bound to the slots of the range. */
  constructor(run: DecoderBinding, graph: DecoderGraph, { firstSlot, numSlots }: SlotRange) {
    this.#run = run;
    this.#width = outputWidthOf(graph);
    this.#firstSlot = firstSlot;
    this.#inputIds = new BigInt64Array(numSlots);
    this.#sequenceLengths = new Int32Array(numSlots);
    this.#logitRows = new BigInt64Array(numSlots);
    this.#positions = graph.takesPositions ? new BigInt64Array(3 * numSlots) : null;
    this.#updatesState = graph.recurrent === undefined ? null : new Uint8Array(numSlots);
    this.#adapters = graph.adapters === undefined ? null : new AdapterInputs(graph.adapters, numSlots);
    run.setInput("input_ids", Tensor.fromTypedArray("int64", this.#inputIds, [numSlots, 1]));
    run.setInput("seqlens_k", Tensor.fromTypedArray("int32", this.#sequenceLengths, [numSlots]));
    run.setInput("total_sequence_length", Tensor.fromTypedArray("int32", this.#totalLength, []));
    if (this.#positions !== null) {
      run.setInput("positions", Tensor.fromTypedArray("int64", this.#positions, [3, numSlots]));
    }
    if (this.#updatesState !== null) {
      run.setInput("updates_state", Tensor.fromTypedArray("bool", this.#updatesState, [numSlots]));
    }
    if (!graph.acceptsImages) return;
    run.setInput("image_embeds", Tensor.fromTypedArray("float32", new Float32Array(0), [0, graph.imageWidth]));
    run.setInput("image_positions", Tensor.fromTypedArray("int64", new BigInt64Array(0), [0, 1]));
  }

  /**
   * Computes one output token of each span; all belong to this range. `logits` [number of wanted rows, outputWidth]
   * receives the predictions in the order of the spans. Those that want none, because their next token is known, come
   * last. Every slot of the range writes a token at the position after its kept tokens; slots that do not decode write
   * there as well, and those values are never read. Their recurrent states stay as they are.
   */
  decode(spans: readonly TokenSpan[], kvSlots: KvSlots, logits: Float32Array): void {
    let longest = 0;
    for (let index = 0; index < this.#inputIds.length; index++) {
      const numKept = kvSlots.numKeptTokens(this.#firstSlot + index);
      this.#inputIds[index] = 0n;
      this.#sequenceLengths[index] = numKept;
      if (numKept > longest) longest = numKept;
    }
    this.#totalLength[0] = longest + 1;
    this.#updatesState?.fill(0);
    this.#adapters?.ids.fill(0n);
    let numRows = 0;
    for (let position = 0; position < spans.length; position++) {
      const { sequence, firstToken, numLogits } = spans[position]!;
      const { kvSlot, outputTokenIds } = sequence;
      const index = kvSlot! - this.#firstSlot;
      this.#inputIds[index] = BigInt(outputTokenIds[firstToken - sequence.numPromptTokens]!);
      if (numLogits === 1) this.#logitRows[numRows++] = BigInt(index);
      if (this.#adapters !== null) this.#adapters.ids[index] = BigInt(sequence.tokens.adapterId);
      if (this.#updatesState !== null) this.#updatesState[index] = 1;
      if (this.#positions !== null) this.#setPosition(this.#positions, index, sequence, kvSlots);
    }
    this.#adapters?.bind(this.#run);
    this.#bindRows(numRows, logits);
    this.#run.run();
    for (const {
      sequence: { kvSlot },
    } of spans)
      kvSlots.setNumKeptTokens(kvSlot!, kvSlots.numKeptTokens(kvSlot!) + 1);
  }

  [Symbol.dispose](): void {
    this.#run[Symbol.dispose]();
  }

  /** The rows are usually those of the step before and already bound. */
  #bindRows(numRows: number, logits: Float32Array): void {
    if (logits.byteOffset === this.#logits?.byteOffset && logits.length === this.#logits.length) return;
    this.#run.setInput("logit_rows", Tensor.fromTypedArray("int64", this.#logitRows.subarray(0, numRows), [numRows]));
    this.#run.setOutput("logits", Tensor.fromTypedArray("float32", logits, [numRows, this.#width]));
    this.#logits = logits;
  }

  #setPosition(positions: BigInt64Array, index: number, sequence: Sequence, kvSlots: KvSlots): void {
    const position = outputPosition(sequence, kvSlots.numKeptTokens(sequence.kvSlot!));
    const numSlots = this.#inputIds.length;
    for (let axis = 0; axis < 3; axis++) positions[axis * numSlots + index] = position;
  }
}
