/**
 * Decoder of a ready-made export, which reads a past and writes a longer present.
 *
 * A prompt runs alone: in one run, or in several if its logits would take too much memory. Sequences that decode run
 * together if the export allows it and gathering their pasts costs less than reading the weights once more. Otherwise
 * they run one after the other.
 */
import { invariant } from "../contract/errors.ts";
import { coverSlots } from "../kv/kv-slots.ts";
import type { KvSlots, SlotRange } from "../kv/kv-slots.ts";
import { PastBatch } from "../kv/past-batch.ts";
import { PastSlots } from "../kv/past-slots.ts";
import { PastStates } from "../kv/past-states.ts";
import type { SlotTransfer } from "../kv/slot-transfer.ts";
import type { StateSnapshots } from "../kv/state-snapshots.ts";
import type { DecoderExport } from "../models/built-model.ts";
import { maxExportedLogitsRows } from "../models/onnx-export/bounded-logits.ts";
import type { SessionOptions } from "../runtime/session.ts";
import type { Tensor } from "../runtime/tensor.ts";
import type { PrefillChunk } from "../scheduler/scheduler-output.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import { noEmbeddings } from "./decoder.ts";
import type { Decoder, DecoderRun, LogitsTarget, SpanEmbeddings, TokenSpan } from "./decoder.ts";
import { draftObstacles } from "./draft-obstacle.ts";
import { ExportedSession } from "./exported-session.ts";
import { planSlotRuns } from "./slot-runs.ts";
import { spanPositions, outputPosition } from "./token-positions.ts";

/** Mutable; owns sessions and KV memory. */
export class ExportedDecoder implements Decoder {
  readonly canTransfer = true;
  readonly runsPromptsApart = true;
  readonly draftObstacle = draftObstacles.exported;
  readonly #maxSlotsPerRun: number;
  readonly #graph: DecoderExport;
  readonly #kvSlots: KvSlots;
  readonly #pastSlots: PastSlots;
  readonly #pastBatch: PastBatch;
  /** Null without recurrent layers. */
  readonly #states: { readonly past: PastStates; readonly snapshots: StateSnapshots } | null;
  readonly #session: ExportedSession;
  /** [maxLen] */
  readonly #ones: BigInt64Array;

  /**
   * @param snapshots Null without recurrent layers.
   * @throws EngineError `runtime_failed` if a graph does not load, `invalid_configuration` if the KV cache does not fit.
   */
  constructor(
    graph: DecoderExport,
    sessionOptions: SessionOptions,
    kvSlots: KvSlots,
    snapshots: StateSnapshots | null = null,
  ) {
    this.#graph = graph;
    this.#kvSlots = kvSlots;
    this.#pastSlots = new PastSlots(graph, kvSlots);
    this.#pastBatch = new PastBatch(graph, this.#pastSlots);
    this.#states = snapshots === null ? null : { past: new PastStates(graph.states, snapshots.numRows), snapshots };
    this.#maxSlotsPerRun = graph.padding === null ? 1 : kvSlots.numSlots;
    this.#ones = new BigInt64Array(kvSlots.maxLen).fill(1n);
    this.#session = new ExportedSession(graph, sessionOptions);
  }

  /** A prompt may take several runs, and the states before the first one are gone after it. */
  get canRepeat(): boolean {
    return this.#states === null;
  }

  transfer(transfer: SlotTransfer): void {
    if (transfer.kind === "state") {
      invariant(this.#states !== null, "states are moved in a decoder without recurrent layers");
      return this.#states.past.copy(transfer.fromRow, transfer.toRow);
    }
    invariant(transfer.kind !== "release", "pages are given back that other slots do not need");
    this.#pastSlots.transfer(transfer);
    if (transfer.kind === "swap") this.#states?.past.swap(...transfer.slots);
    if (transfer.kind === "copy") this.#kvSlots.setNumKeptTokens(transfer.toSlot, transfer.numTokens);
  }

  planRuns(decodes: readonly Sequence[], chunks: readonly PrefillChunk[]): readonly DecoderRun[] {
    const planRanges = (slots: readonly number[]): SlotRange[] => coverSlots(slots, this.#maxSlotsPerRun);
    return planSlotRuns(decodes, chunks, planRanges, { joinsReplays: false, packsPrompts: false });
  }

  compute(spans: readonly TokenSpan[], { rows }: LogitsTarget): void {
    if (spans[0]!.sequence.isPrefilling) return this.#computeChunk(spans[0]!, rows);
    // A sequence has the token already if it was computed beside one whose run failed.
    for (const { sequence, firstToken } of spans) this.#pastSlots.truncate(sequence.kvSlot!, firstToken);
    this.#decode(
      spans.map(({ sequence }) => sequence),
      rows,
    );
  }

  [Symbol.dispose](): void {
    this.#session[Symbol.dispose]();
  }

  /** An export returns the predictions of the last tokens. */
  #computeChunk(span: TokenSpan, rows: Float32Array): void {
    const { numTokensBehind = 0 } = span;
    if (numTokensBehind === 0) return this.#prefill(span, rows);
    const logits = new Float32Array(rows.length + numTokensBehind * this.#graph.vocabSize);
    this.#prefill(span, logits);
    rows.set(logits.subarray(0, rows.length));
  }

  #prefill({ sequence, firstToken, endToken, embeddings }: TokenSpan, logits: Float32Array): void {
    const { kvSlot } = sequence;
    const { vocabSize } = this.#graph;
    invariant(kvSlot !== null, "a prompt is computed without a KV slot");
    this.#pastSlots.truncate(kvSlot, firstToken);
    if (firstToken === 0) this.#states?.past.clear(kvSlot);
    const firstRowToken = endToken - logits.length / vocabSize;
    for (let start = firstToken; start < endToken;) {
      const end = Math.min(endToken, start + this.#maxRunLength(start, endToken));
      this.#session.run({
        numSequences: 1,
        tokenIds: BigInt64Array.from(sequence.tokenIdsBetween(start, end), BigInt),
        embeddings: this.#embeddingsBetween(embeddings, start - firstToken, end - firstToken),
        positionIds: this.#promptPositions(sequence, start, end),
        mask: this.#ones.subarray(0, end),
        past: this.#pastOf(kvSlot),
        present: this.#present(end),
        logits: logits.subarray(
          Math.max(start - firstRowToken, 0) * vocabSize,
          Math.max(end - firstRowToken, 0) * vocabSize,
        ),
      });
      this.#keepPresent(kvSlot, end);
      start = end;
    }
    this.#kvSlots.setNumKeptTokens(kvSlot, endToken);
    if (this.#states === null || !sequence.chunkEnds.includes(endToken)) return;
    this.#states.past.copy(kvSlot, this.#states.snapshots.add(kvSlot, endToken));
  }

  /** As `ExportedRun.past`. */
  #pastOf(slot: number): Tensor[] {
    return [...this.#pastSlots.past(slot), ...(this.#states?.past.past(slot) ?? [])];
  }

  #present(numTokens: number): Tensor[] {
    return [...this.#pastSlots.present(numTokens), ...(this.#states?.past.present() ?? [])];
  }

  #keepPresent(slot: number, numTokens: number): void {
    this.#pastSlots.keepPresent(slot, numTokens);
    this.#states?.past.keepPresent(slot);
  }

  #decode(sequences: readonly Sequence[], logits: Float32Array): void {
    const { vocabSize } = this.#graph;
    for (let index = 0; index < sequences.length;) {
      const slots = sequences.slice(index).map(({ kvSlot }) => kvSlot!);
      const end = index + (this.#graph.padding === null ? 1 : this.#pastBatch.numFitting(slots));
      const rows = logits.subarray(index * vocabSize, end * vocabSize);
      this.#decodeTogether(sequences.slice(index, end), rows);
      index = end;
    }
  }

  #decodeTogether(sequences: readonly Sequence[], logits: Float32Array): void {
    const slots = sequences.map(({ kvSlot }) => kvSlot!);
    const slot = slots[0]!;
    const isAlone = slots.length === 1;
    const numTotal = this.#pastSlots.lengthOf(slot) + 1;
    const batch = isAlone
      ? {
          mask: this.#ones.subarray(0, numTotal),
          past: this.#pastOf(slot),
          present: this.#present(numTotal),
        }
      : this.#pastBatch.gather(slots);
    this.#session.run({
      numSequences: sequences.length,
      tokenIds: BigInt64Array.from(sequences, ({ outputTokenIds }) =>
        BigInt(outputTokenIds[outputTokenIds.length - 1]!),
      ),
      embeddings: noEmbeddings,
      positionIds: this.#newestPositions(sequences),
      ...batch,
      logits,
    });
    if (isAlone) this.#keepPresent(slot, numTotal);
    else this.#pastBatch.scatter(slots);
    for (const kvSlot of slots) this.#kvSlots.setNumKeptTokens(kvSlot, this.#pastSlots.lengthOf(kvSlot));
  }

  /** The largest number of tokens in the next run of a prompt that continues at `start`. */
  #maxRunLength(start: number, endToken: number): number {
    const { hasCacheBranch, numLogitsToKeepRank, vocabSize, keepsImagesWhole = false } = this.#graph;
    // The graph branch with a past was traced for one token.
    if (hasCacheBranch && start > 0) return 1;
    const isWhole = numLogitsToKeepRank !== null || keepsImagesWhole;
    return isWhole ? endToken - start : maxExportedLogitsRows(vocabSize);
  }

  /** The embeddings at places from `start` up to, but not including, `end`. Their places are relative to `start`. */
  #embeddingsBetween({ embeddings, positions }: SpanEmbeddings, start: number, end: number): SpanEmbeddings {
    const { hiddenSize } = this.#graph;
    const isWithin = (position: bigint): boolean => Number(position) >= start && Number(position) < end;
    const within = positions.filter(isWithin);
    const firstRow = positions.findIndex(isWithin);
    return {
      embeddings: embeddings.subarray(firstRow * hiddenSize, (firstRow + within.length) * hiddenSize),
      positions: within.map((position) => position - BigInt(start)),
    };
  }

  #promptPositions(sequence: Sequence, start: number, end: number): BigInt64Array {
    if (this.#graph.numPositionAxes === 3) return spanPositions(sequence, start, end);
    return BigInt64Array.from({ length: end - start }, (_, index) => BigInt(start + index));
  }

  /** Row-major [axes, sequences.length]. */
  #newestPositions(sequences: readonly Sequence[]): BigInt64Array {
    const numAxes = this.#graph.numPositionAxes;
    const positions = new BigInt64Array(numAxes * sequences.length);
    sequences.forEach((sequence, index) => {
      const position = outputPosition(sequence, this.#pastSlots.lengthOf(sequence.kvSlot!));
      for (let axis = 0; axis < numAxes; axis++) positions[axis * sequences.length + index] = position;
    });
    return positions;
  }
}
