/**
 * Runs Fovea's own graphs, which read and write the KV cache in place: prompt chunks of one sequence, one-token steps of
 * many.
 */
import { invariant } from "../contract/errors.ts";
import { createKvCache } from "../kv/kv-cache.ts";
import type { KvCache } from "../kv/kv-cache.ts";
import type { KvSlots } from "../kv/kv-slots.ts";
import type { SlotBlockPlan } from "../kv/plan-slot-blocks.ts";
import type { SlotRange } from "../kv/slot-ranges.ts";
import type { SlotTransfer } from "../kv/slot-transfer.ts";
import { StateCache } from "../kv/state-cache.ts";
import type { StateSnapshots } from "../kv/state-snapshots.ts";
import type { DecoderGraph } from "../models/built-model.ts";
import { Session } from "../runtime/session.ts";
import type { SessionOptions } from "../runtime/session.ts";
import { Tensor } from "../runtime/tensor.ts";
import type { PrefillChunk } from "../scheduler/scheduler-output.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import { BoundedCache } from "./bounded-cache.ts";
import { DecodeBatch } from "./decode-batch.ts";
import { DecoderBinding } from "./decoder-binding.ts";
import { recurrentObstacle, spanTokenIds } from "./decoder.ts";
import type { Decoder, DecoderRun, LogitsTarget, TokenSpan } from "./decoder.ts";
import { planSlotRuns } from "./slot-runs.ts";
import { spanPositions } from "./token-positions.ts";

/** A run holds native handles for the KV of every layer. Sequences use only a few different ranges. */
const MAX_CACHED_RUNS = 64;

/** Mutable; owns the session and the KV memory. */
export class InPlaceDecoder implements Decoder {
  readonly runsPromptsApart = true;
  readonly #graph: DecoderGraph;
  readonly #session: Session;
  readonly #kvSlots: KvSlots;
  readonly #kvCache: KvCache;
  /** Null without recurrent layers. */
  readonly #states: { readonly cache: StateCache; readonly snapshots: StateSnapshots } | null;
  readonly #prefillRuns = new BoundedCache<number, DecoderBinding>(MAX_CACHED_RUNS);
  readonly #decodeBatches = new BoundedCache<number, DecodeBatch>(MAX_CACHED_RUNS);

  /**
   * @param snapshots Null without recurrent layers.
   * @param blocks Of slots that share memory; null if there is memory for all of them.
   * @throws EngineError `runtime_failed` if a graph does not load, `invalid_configuration` if the KV cache does not fit.
   */
  constructor(
    graph: DecoderGraph,
    sessionOptions: SessionOptions,
    kvSlots: KvSlots,
    snapshots: StateSnapshots | null,
    blocks: SlotBlockPlan | null = null,
  ) {
    this.#graph = graph;
    this.#kvSlots = kvSlots;
    using loaded = new DisposableStack();
    this.#session = loaded.use(Session.load(graph.path, sessionOptions));
    this.#kvCache = loaded.use(createKvCache(this.#session, graph, kvSlots, blocks));
    const { recurrent } = graph;
    this.#states =
      recurrent === undefined || snapshots === null
        ? null
        : { cache: new StateCache(this.#session, recurrent, snapshots.numRows), snapshots };
    loaded.move();
  }

  get canTransfer(): boolean {
    return this.#kvCache.transfer !== null;
  }

  get canRepeat(): boolean {
    return this.#states === null;
  }

  get draftObstacle(): string | null {
    if (this.#states !== null) return recurrentObstacle;
    if (this.#session.deviceMemory !== null) return `KV slots on ${this.#session.device} compute prompts elsewhere`;
    // A draft would be computed with other weights than the tokens of an answer.
    return this.#graph.widensPrompts === true ? "int4 prompts have 8-bit weights; set PROMPT_DTYPE=model" : null;
  }

  transfer(transfer: SlotTransfer): void {
    if (transfer.kind === "state") {
      invariant(this.#states !== null, "states are moved in a decoder without recurrent layers");
      return this.#states.cache.copy(transfer.fromRow, transfer.toRow);
    }
    if (transfer.kind === "release") {
      invariant(this.#kvCache.release !== null, "pages are given back that other slots do not need");
      return this.#kvCache.release(transfer.slot, transfer.firstBlock);
    }
    invariant(this.#kvCache.transfer !== null, "KV is moved on a device that cannot");
    this.#kvCache.transfer(transfer);
    if (transfer.kind === "swap") this.#states?.cache.swap(...transfer.slots);
    if (transfer.kind === "copy") this.#kvSlots.setNumKeptTokens(transfer.toSlot, transfer.numTokens);
  }

  planRuns(decodes: readonly Sequence[], chunks: readonly PrefillChunk[]): readonly DecoderRun[] {
    return planSlotRuns(decodes, chunks, (slots, hasPrompts) => this.#kvCache.planRanges(slots, hasPrompts), true);
  }

  compute(spans: readonly TokenSpan[], { rows }: LogitsTarget): void {
    const span = spans[0]!;
    const isOutput = span.firstToken >= span.sequence.numPromptTokens;
    const isNewestToken = isOutput && span.endToken === span.firstToken + 1;
    if (!isNewestToken) return this.#prefill(span, rows);
    const slots = spans.map(({ sequence }) => sequence.kvSlot!);
    const range = this.#kvCache.rangeOf(Math.min(...slots), Math.max(...slots));
    this.#kvCache.prepare(range, span);
    const key = range.firstSlot * (this.#kvSlots.numSlots + 1) + range.numSlots;
    const batch = this.#decodeBatches.getOrCreate(
      key,
      () => new DecodeBatch(this.#createRun(range), this.#graph, range),
    );
    batch.decode(spans, this.#kvSlots, rows);
  }

  [Symbol.dispose](): void {
    this.#prefillRuns[Symbol.dispose]();
    this.#decodeBatches[Symbol.dispose]();
    this.#kvCache[Symbol.dispose]();
    this.#states?.cache[Symbol.dispose]();
    this.#session[Symbol.dispose]();
  }

  #prefill(span: TokenSpan, logits: Float32Array): void {
    const { sequence, firstToken, endToken, numLogits, embeddings } = span;
    const { kvSlot } = sequence;
    const { imageWidth, vocabSize, acceptsImages, takesPositions } = this.#graph;
    invariant(kvSlot !== null, "a prompt is computed without a KV slot");
    const range = { firstSlot: kvSlot, numSlots: 1 };
    this.#kvCache.prepare(range, span);
    const run = this.#prefillRuns.getOrCreate(kvSlot, () => this.#createRun(range));
    const tokenIds = BigInt64Array.from(spanTokenIds(span), BigInt);
    const logitRows = BigInt64Array.from({ length: numLogits }, (_, row) => BigInt(tokenIds.length - numLogits + row));
    run.setInput("input_ids", Tensor.fromTypedArray("int64", tokenIds, [1, tokenIds.length]));
    run.setInput("seqlens_k", Tensor.fromTypedArray("int32", Int32Array.of(endToken - 1), [1]));
    run.setInput("total_sequence_length", Tensor.fromTypedArray("int32", Int32Array.of(endToken), []));
    run.setInput("logit_rows", Tensor.fromTypedArray("int64", logitRows, [numLogits]));
    run.setOutput("logits", Tensor.fromTypedArray("float32", logits, [numLogits, vocabSize]));
    if (acceptsImages) {
      const numEmbeddings = embeddings.positions.length;
      const rows = Tensor.fromTypedArray("float32", embeddings.embeddings, [numEmbeddings, imageWidth]);
      run.setInput("image_embeds", rows);
      run.setInput("image_positions", Tensor.fromTypedArray("int64", embeddings.positions, [numEmbeddings, 1]));
    }
    if (this.#states !== null) {
      if (firstToken === 0) this.#states.cache.clear(kvSlot);
      run.setInput("updates_state", Tensor.fromTypedArray("bool", Uint8Array.of(1), [1]));
    }
    if (takesPositions) {
      const axes = spanPositions(sequence, firstToken, endToken);
      run.setInput("positions", Tensor.fromTypedArray("int64", axes, [3, tokenIds.length]));
    }
    run.run();
    this.#kvSlots.setNumKeptTokens(kvSlot, endToken);
    if (this.#states === null || !sequence.chunkEnds.includes(endToken)) return;
    this.#states.cache.copy(kvSlot, this.#states.snapshots.add(kvSlot, endToken));
  }

  #createRun({ firstSlot, numSlots }: SlotRange): DecoderBinding {
    const stateView = this.#states?.cache.view(firstSlot, numSlots) ?? null;
    return new DecoderBinding(this.#session, this.#graph, this.#kvCache.view(firstSlot, numSlots), stateView);
  }
}
