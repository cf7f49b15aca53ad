/**
 * Runs Fovea's own graphs, which read and write the KV cache in place: prompt chunks of one sequence or short prompts of
 * several, and one-token steps of many.
 */
import { invariant } from "../contract/errors.ts";
import { createKvCache } from "../kv/create-kv-cache.ts";
import type { KvCache } from "../kv/kv-cache.ts";
import type { KvSlots, SlotRange } from "../kv/kv-slots.ts";
import type { SlotBlockPlan } from "../kv/plan-slot-blocks.ts";
import type { SlotTransfer } from "../kv/slot-transfer.ts";
import { StateCache } from "../kv/state-cache.ts";
import type { StateSnapshots } from "../kv/state-snapshots.ts";
import type { DecoderGraph } from "../models/built-model.ts";
import { outputWidthOf } from "../models/decoder-shape.ts";
import type { Session } from "../runtime/session.ts";
import { Tensor } from "../runtime/tensor.ts";
import type { PrefillChunk } from "../scheduler/scheduler-output.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import type { GraphPool } from "../vision/graph-pool.ts";
import { AdapterInputs } from "./adapter-inputs.ts";
import { BoundedCache } from "./bounded-cache.ts";
import { DecodeBatch } from "./decode-batch.ts";
import { DecoderBinding } from "./decoder-binding.ts";
import { spanTokenIds } from "./decoder.ts";
import type { Decoder, DecoderRun, LogitsTarget, SpanEmbeddings, TokenSpan } from "./decoder.ts";
import { draftObstacles } from "./draft-obstacle.ts";
import { planSlotRuns } from "./slot-runs.ts";
import { writePositions } from "./token-positions.ts";

/** A run holds native handles for the KV of every layer. Sequences use only a few different ranges. */
const MAX_CACHED_RUNS = 64;

/** Mutable; owns the session and the KV memory. */
export class InPlaceDecoder implements Decoder {
  readonly runsPromptsApart = true;
  readonly featurePool: GraphPool | null;
  readonly #graph: DecoderGraph;
  readonly #session: Session;
  readonly #kvSlots: KvSlots;
  readonly #kvCache: KvCache;
  /** Null without recurrent layers. */
  readonly #states: { readonly cache: StateCache; readonly snapshots: StateSnapshots } | null;
  readonly #packsPrompts: boolean;
  /** By `#keyOf` their ranges, like the batches. */
  readonly #prefillRuns = new BoundedCache<number, DecoderBinding>(MAX_CACHED_RUNS);
  readonly #decodeBatches = new BoundedCache<number, DecodeBatch>(MAX_CACHED_RUNS);

  /**
   * @param snapshots Null without recurrent layers.
   * @param blocks Of slots that share memory; null if there is memory for all of them.
   * @param featurePool Image features on the device; null if they are on the host.
   * @param session Taken over if this returns, like the pool.
   * @throws EngineError `invalid_configuration` if the KV cache does not fit.
   */
  constructor(
    graph: DecoderGraph,
    session: Session,
    kvSlots: KvSlots,
    snapshots: StateSnapshots | null,
    blocks: SlotBlockPlan | null = null,
    featurePool: GraphPool | null = null,
  ) {
    this.#graph = graph;
    this.#kvSlots = kvSlots;
    using loaded = new DisposableStack();
    this.#session = session;
    this.#kvCache = loaded.use(createKvCache(this.#session, graph, kvSlots, blocks));
    const { recurrent } = graph;
    // Padding would change recurrent states, and take pages of slots that share memory.
    this.#packsPrompts = this.#session.deviceMemory === null && recurrent === undefined && blocks === null;
    this.#states =
      recurrent === undefined || snapshots === null
        ? null
        : { cache: new StateCache(this.#session, recurrent, snapshots.numRows), snapshots };
    this.featurePool = featurePool;
    loaded.move();
  }

  get canTransfer(): boolean {
    return this.#kvCache.transfer !== null;
  }

  get canRepeat(): boolean {
    return this.#states === null;
  }

  get draftObstacle(): string | null {
    if (this.#states !== null) return draftObstacles.recurrent;
    if (this.#session.deviceMemory !== null) return draftObstacles.deviceSlots(this.#session.device);
    return this.#graph.widensPrompts === true ? draftObstacles.widened : null;
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
    const planRanges = (slots: readonly number[], hasPrompts: boolean): SlotRange[] =>
      this.#kvCache.planRanges(slots, hasPrompts);
    return planSlotRuns(decodes, chunks, planRanges, { joinsReplays: true, packsPrompts: this.#packsPrompts });
  }

  compute(spans: readonly TokenSpan[], { rows }: LogitsTarget): void {
    const span = spans[0]!;
    const isOutput = span.firstToken >= span.sequence.numPromptTokens;
    const isNewestToken = isOutput && span.endToken === span.firstToken + 1;
    const slots = spans.map(({ sequence }) => sequence.kvSlot!);
    const [lowest, highest] = [Math.min(...slots), Math.max(...slots)];
    // A prompt that is computed alone must not be a batch with the slots before it.
    const range = isNewestToken
      ? this.#kvCache.rangeOf(lowest, highest)
      : { firstSlot: lowest, numSlots: highest - lowest + 1 };
    this.#kvCache.prepare(range, span);
    if (!isNewestToken) return this.#prefill(spans, range, rows);
    const batch = this.#decodeBatches.getOrCreate(
      this.#keyOf(range),
      () => new DecodeBatch(this.#createRun(range), this.#graph, range),
    );
    batch.decode(spans, this.#kvSlots, rows);
  }

  [Symbol.dispose](): void {
    this.#prefillRuns[Symbol.dispose]();
    this.#decodeBatches[Symbol.dispose]();
    this.#kvCache[Symbol.dispose]();
    this.#states?.cache[Symbol.dispose]();
    this.featurePool?.[Symbol.dispose]();
    this.#session[Symbol.dispose]();
  }

  /**
   * Several spans belong to a pack, one for each slot of the range: all tokens up to their ends are computed, and the
   * shorter ones are padded.
   */
  #prefill(spans: readonly TokenSpan[], range: SlotRange, logits: Float32Array): void {
    const { imageWidth, acceptsImages, takesPositions, adapters: shape } = this.#graph;
    const { firstSlot, numSlots } = range;
    invariant(numSlots === spans.length, "a slot between those of packed prompts has none");
    const [span] = spans as readonly [TokenSpan];
    const { embeddings } = span;
    const firstToken = numSlots === 1 ? span.firstToken : 0;
    const length = Math.max(...spans.map(({ endToken }) => endToken)) - firstToken;
    const tokenIds = new BigInt64Array(numSlots * length);
    const positions = takesPositions ? new BigInt64Array(3 * tokenIds.length) : null;
    const adapters = shape === undefined ? null : new AdapterInputs(shape, tokenIds.length);
    const logitRows: bigint[] = [];
    for (const each of spans) {
      const firstRow = (each.sequence.kvSlot! - firstSlot) * length;
      const ids = spanTokenIds({ ...each, firstToken });
      tokenIds.set(BigInt64Array.from(ids, BigInt), firstRow);
      adapters?.ids.fill(BigInt(each.sequence.tokens.adapterId), firstRow, firstRow + ids.length);
      const endRow = firstRow + ids.length - (each.numTokensBehind ?? 0);
      for (let row = endRow - each.numLogits; row < endRow; row++) logitRows.push(BigInt(row));
      if (positions !== null) writePositions(each.sequence, firstToken, each.endToken, positions, firstRow);
    }
    const totalLength = firstToken + length;
    const run = this.#prefillRuns.getOrCreate(this.#keyOf(range), () => this.#createRun(range));
    run.setInput("input_ids", Tensor.fromTypedArray("int64", tokenIds, [numSlots, length]));
    const lengths = new Int32Array(numSlots).fill(totalLength - 1);
    run.setInput("seqlens_k", Tensor.fromTypedArray("int32", lengths, [numSlots]));
    run.setInput("total_sequence_length", Tensor.fromTypedArray("int32", Int32Array.of(totalLength), []));
    const numRows = logitRows.length;
    run.setInput("logit_rows", Tensor.fromTypedArray("int64", BigInt64Array.from(logitRows), [numRows]));
    run.setOutput("logits", Tensor.fromTypedArray("float32", logits, [numRows, outputWidthOf(this.#graph)]));
    if (acceptsImages) {
      const numEmbeddings = embeddings.positions.length;
      const rows = gatherFeatures(this.featurePool, embeddings);
      const onHost = (): Tensor => Tensor.fromTypedArray("float32", embeddings.embeddings, [numEmbeddings, imageWidth]);
      run.setInput("image_embeds", rows ?? onHost());
      run.setInput("image_positions", Tensor.fromTypedArray("int64", embeddings.positions, [numEmbeddings, 1]));
    }
    if (this.#states !== null) {
      if (firstToken === 0) this.#states.cache.clear(firstSlot);
      run.setInput("updates_state", Tensor.fromTypedArray("bool", Uint8Array.of(1), [1]));
    }
    if (positions !== null) run.setInput("positions", Tensor.fromTypedArray("int64", positions, [3, tokenIds.length]));
    adapters?.bind(run);
    run.run();
    for (const { sequence, endToken } of spans) this.#kvSlots.setNumKeptTokens(sequence.kvSlot!, endToken);
    this.#keepState(span);
  }

  /** Keeps the recurrent states after a chunk that ends where prefixes may end. */
  #keepState({ sequence: { kvSlot, chunkEnds }, endToken }: TokenSpan): void {
    if (this.#states === null || !chunkEnds.includes(endToken)) return;
    this.#states.cache.copy(kvSlot!, this.#states.snapshots.add(kvSlot!, endToken));
  }

  #keyOf({ firstSlot, numSlots }: SlotRange): number {
    return firstSlot * (this.#kvSlots.numSlots + 1) + numSlots;
  }

  #createRun({ firstSlot, numSlots }: SlotRange): DecoderBinding {
    const stateView = this.#states?.cache.view(firstSlot, numSlots) ?? null;
    return new DecoderBinding(this.#session, this.#graph, this.#kvCache.view(firstSlot, numSlots), stateView);
  }
}

/** The span's features, gathered on the device; null if all of them are on the host. */
function gatherFeatures(
  pool: GraphPool | null,
  { embeddings, positions, poolRows = null }: SpanEmbeddings,
): Tensor | null {
  if (pool === null || poolRows === null || poolRows.every((row) => row < 0n)) return null;
  let hostRow = embeddings.length === 0 ? 0n : BigInt(pool.placeForRun(embeddings));
  return pool.gather(
    BigInt64Array.from(positions, (_, index) => (poolRows[index]! < 0n ? hostRow++ : poolRows[index]!)),
  );
}
