/**
 * Ready-made exports, which read a past and write a present that is longer: every sequence is run by itself.
 *
 * One graph embeds the tokens, images take their places here, the other computes. Where an export computes the logits of
 * all tokens of a run, prompts are run in pieces, so that these stay bounded.
 */
import { invariant } from "../errors.ts";
import type { DecoderExport } from "../models/built-model.ts";
import { maxExportedLogitsRows } from "../models/onnx-export/bounded-logits.ts";
import type { IoBinding } from "../runtime/io-binding.ts";
import { Session } from "../runtime/session.ts";
import type { SessionOptions } from "../runtime/session.ts";
import { Tensor } from "../runtime/tensor.ts";
import type { StepLogits } from "../sampling/step-logits.ts";
import type { ChunkEmbeddings, Decoder } from "./decoder.ts";
import type { KvSlots } from "./kv-slots.ts";
import { PastSlots } from "./past-slots.ts";
import type { Sequence } from "./sequence.ts";
import type { SlotRange } from "./slot-ranges.ts";
import type { SlotTransfer } from "./slot-transfer.ts";
import { chunkPositions, outputPosition } from "./token-positions.ts";

type Numbers = Float32Array | Float16Array;

/** What one run computes: tokens of one sequence that follow on what its slot keeps. */
interface Run {
  readonly slot: number;
  readonly tokenIds: BigInt64Array;
  /** Row-major [3, tokenIds.length]; null where a token's position is the place it stands at. */
  readonly positions: BigInt64Array | null;
  /** Images among the tokens. */
  readonly embeddings: ChunkEmbeddings;
  /** Row-major [numRows, vocabSize]: receives what the last `numRows` tokens predict. */
  readonly logits: Float32Array;
}

const noEmbeddings: ChunkEmbeddings = { embeddings: new Float32Array(0), positions: new BigInt64Array(0) };

/** Mutable; owns sessions and KV memory. */
export class ExportedDecoder implements Decoder {
  readonly maxSlotsPerRun = 1;
  readonly canTransfer = true;
  readonly #graph: DecoderExport;
  readonly #kvSlots: KvSlots;
  readonly #pastSlots: PastSlots;
  readonly #session: Session;
  readonly #binding: IoBinding;
  readonly #embedding: { readonly session: Session; readonly binding: IoBinding } | null;
  readonly #mask: BigInt64Array;
  /** Holds the logits that the graph computes and nobody asked for. */
  #scratch: Numbers = new Float32Array(0);

  /** Throws EngineError `runtime_failed` for a graph that does not load, `invalid_configuration` for too much KV. */
  constructor(graph: DecoderExport, sessionOptions: SessionOptions, kvSlots: KvSlots) {
    this.#graph = graph;
    this.#kvSlots = kvSlots;
    this.#pastSlots = new PastSlots(graph, kvSlots);
    this.#mask = new BigInt64Array(kvSlots.maxLen).fill(1n);
    using loaded = new DisposableStack();
    this.#session = loaded.use(Session.load(graph.path, sessionOptions));
    this.#binding = this.#session.createBinding();
    if (graph.embedTokens === null) {
      this.#embedding = null;
    } else {
      const session = loaded.use(Session.load(graph.embedTokens.path, sessionOptions));
      this.#embedding = { session, binding: session.createBinding() };
    }
    loaded.move();
  }

  transfer(transfer: SlotTransfer): void {
    this.#pastSlots.transfer(transfer);
    if (transfer.kind === "copy") this.#kvSlots.setNumKeptTokens(transfer.toSlot, transfer.numTokens);
  }

  prefill(
    sequence: Sequence,
    firstToken: number,
    endToken: number,
    { embeddings, positions }: ChunkEmbeddings,
    logits: Float32Array,
  ): void {
    const { promptTokenIds, kvSlot } = sequence;
    const { hiddenSize, vocabSize, takesPositions } = this.#graph;
    invariant(kvSlot !== null, "a prompt is computed without a KV slot");
    this.#pastSlots.truncate(kvSlot, firstToken);
    const firstRowToken = endToken - logits.length / vocabSize;
    for (let start = firstToken; start < endToken;) {
      const end = Math.min(endToken, start + this.#maxRunLength(start, endToken));
      const firstImageRow = positions.findIndex((position) => Number(position) >= start - firstToken);
      const images = positions.filter(
        (place) => Number(place) >= start - firstToken && Number(place) < end - firstToken,
      );
      const wanted = logits.subarray(
        Math.max(start - firstRowToken, 0) * vocabSize,
        Math.max(end - firstRowToken, 0) * vocabSize,
      );
      this.#run({
        slot: kvSlot,
        tokenIds: BigInt64Array.from(promptTokenIds.slice(start, end), BigInt),
        positions: takesPositions ? chunkPositions(sequence, start, end) : null,
        embeddings: {
          embeddings: embeddings.subarray(firstImageRow * hiddenSize, (firstImageRow + images.length) * hiddenSize),
          positions: images.map((position) => position - BigInt(start - firstToken)),
        },
        logits: wanted,
      });
      start = end;
    }
    this.#kvSlots.setNumKeptTokens(kvSlot, endToken);
  }

  decode(_: SlotRange, sequences: readonly Sequence[], { buffer }: StepLogits, firstRow: number): void {
    const { vocabSize, takesPositions } = this.#graph;
    sequences.forEach((sequence, index) => {
      const { kvSlot, outputTokenIds } = sequence;
      const numKept = this.#kvSlots.numKeptTokens(kvSlot!);
      const row = firstRow + index;
      this.#run({
        slot: kvSlot!,
        tokenIds: BigInt64Array.of(BigInt(outputTokenIds[outputTokenIds.length - 1])),
        positions: takesPositions ? new BigInt64Array(3).fill(outputPosition(sequence, numKept)) : null,
        embeddings: noEmbeddings,
        logits: buffer.subarray(row * vocabSize, (row + 1) * vocabSize),
      });
      this.#kvSlots.setNumKeptTokens(kvSlot!, numKept + 1);
    });
  }

  [Symbol.dispose](): void {
    this.#session[Symbol.dispose]();
    this.#embedding?.session[Symbol.dispose]();
  }

  /** Most tokens of the next run of a prompt that goes on at `start`. */
  #maxRunLength(start: number, endToken: number): number {
    const { hasCacheBranch, numLogitsToKeepRank, vocabSize } = this.#graph;
    // The branch with a past was traced for one token.
    if (hasCacheBranch && start > 0) return 1;
    return numLogitsToKeepRank === null ? maxExportedLogitsRows(vocabSize) : endToken - start;
  }

  #run({ slot, tokenIds, positions, embeddings, logits }: Run): void {
    const { vocabSize, takesAttentionMask, numPositionAxes, numLogitsToKeepRank, hasCacheBranch } = this.#graph;
    const numTokens = tokenIds.length;
    const numPast = this.#pastSlots.lengthOf(slot);
    const numTotal = numPast + numTokens;
    const numWanted = logits.length / vocabSize;
    // 0 would be all of them.
    const numRows = numLogitsToKeepRank === null ? numTokens : Math.max(numWanted, 1);
    using tensors = new DisposableStack();
    const bind = (name: string, tensor: Tensor): void => this.#binding.bindInput(name, tensors.use(tensor));
    this.#bindTokens(tokenIds, embeddings, bind);
    if (takesAttentionMask) {
      bind("attention_mask", Tensor.fromTypedArray("int64", this.#mask.subarray(0, numTotal), [1, numTotal]));
    }
    if (numPositionAxes === 3) bind("position_ids", Tensor.fromTypedArray("int64", positions!, [3, 1, numTokens]));
    if (numPositionAxes === 1) {
      const places = BigInt64Array.from({ length: numTokens }, (_, index) => BigInt(numPast + index));
      bind("position_ids", Tensor.fromTypedArray("int64", places, [1, numTokens]));
    }
    if (numLogitsToKeepRank !== null) {
      const shape = numLogitsToKeepRank === 0 ? [] : [1];
      bind("num_logits_to_keep", Tensor.fromTypedArray("int64", BigInt64Array.of(BigInt(numRows)), shape));
    }
    if (hasCacheBranch) {
      bind("use_cache_branch", Tensor.fromTypedArray("bool", Uint8Array.of(numPast > 0 ? 1 : 0), [1]));
    }
    this.#pastSlots.past(slot).forEach((tensor, index) => bind(`past_key_values.${keyOrValue(index)}`, tensor));
    this.#pastSlots.present(numTotal).forEach((tensor, index) => {
      this.#binding.bindOutput(`present.${keyOrValue(index)}`, tensors.use(tensor));
    });
    const computed = this.#logitsTarget(logits, numRows);
    const shape = [1, numRows, vocabSize];
    const output = Tensor.fromTypedArray(this.#graph.logitsElementType, computed, shape);
    this.#binding.bindOutput("logits", tensors.use(output));
    this.#binding.run();
    this.#pastSlots.keepPresent(slot, numTotal);
    if (computed !== logits) logits.set(computed.subarray((numRows - numWanted) * vocabSize));
  }

  /** Embedded and with the images in their places, where the decoder takes embeddings. */
  #bindTokens(
    tokenIds: BigInt64Array,
    { embeddings, positions }: ChunkEmbeddings,
    bind: (name: string, tensor: Tensor) => void,
  ): void {
    const numTokens = tokenIds.length;
    const ids = Tensor.fromTypedArray("int64", tokenIds, [1, numTokens]);
    const { embedTokens, embedsElementType, hiddenSize } = this.#graph;
    if (this.#embedding === null || embedTokens === null) return bind("input_ids", ids);
    const { binding } = this.#embedding;
    const shape = [1, numTokens, hiddenSize];
    const embedded = createNumbers(embedTokens.elementType, numTokens * hiddenSize);
    {
      using input = ids;
      using output = Tensor.fromTypedArray(embedTokens.elementType, embedded, shape);
      binding.bindInput("input_ids", input);
      binding.bindOutput("inputs_embeds", output);
      binding.run();
    }
    positions.forEach((position, row) => {
      embedded.set(embeddings.subarray(row * hiddenSize, (row + 1) * hiddenSize), Number(position) * hiddenSize);
    });
    const given =
      embedTokens.elementType === embedsElementType ? embedded : convertNumbers(embedded, embedsElementType);
    bind("inputs_embeds", Tensor.fromTypedArray(embedsElementType, given, shape));
  }

  /** The wanted rows themselves where the graph computes just these, else scratch memory for all that it computes. */
  #logitsTarget(logits: Float32Array, numRows: number): Numbers {
    const { vocabSize, logitsElementType } = this.#graph;
    const length = numRows * vocabSize;
    if (logitsElementType === "float32" && logits.length === length) return logits;
    if (this.#scratch.length < length) this.#scratch = createNumbers(logitsElementType, length);
    return this.#scratch.subarray(0, length);
  }
}

function keyOrValue(index: number): string {
  return `${index >> 1}.${index % 2 === 0 ? "key" : "value"}`;
}

function createNumbers(elementType: "float32" | "float16", length: number): Numbers {
  return elementType === "float32" ? new Float32Array(length) : new Float16Array(length);
}

function convertNumbers(values: Numbers, elementType: "float32" | "float16"): Numbers {
  return elementType === "float32" ? Float32Array.from(values) : Float16Array.from(values);
}
