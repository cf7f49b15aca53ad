/**
 * Runs Fovea's own graphs over a paged KV cache: prompt chunks and newest tokens of all sequences together, in one run.
 * Each sequence has a block table, so no two of them need neighbouring memory.
 *
 * Steps in which every sequence decodes are padded to a few shapes. On CUDA each of them becomes a captured graph when
 * it is used for the second time; all other steps run eagerly, and so do shapes whose capture fails.
 */
import { invariant } from "../contract/errors.ts";
import { allocateBlocks } from "../kv/block-cache.ts";
import type { KvCapacity } from "../kv/kv-manager.ts";
import { planEncoderCache } from "../kv/memory-plan.ts";
import type { SlotTransfer } from "../kv/slot-transfer.ts";
import { StateCache } from "../kv/state-cache.ts";
import type { StateView } from "../kv/state-cache.ts";
import { NewestRows, numStateRows, SCRATCH_STATE_ROW, ZERO_STATE_ROW } from "../kv/state-rows.ts";
import type { DecoderGraph, RecurrentShape } from "../models/built-model.ts";
import { outputWidthOf } from "../models/decoder-shape.ts";
import { RunOptions } from "../runtime/run-options.ts";
import type { Session } from "../runtime/session.ts";
import type { PrefillChunk } from "../scheduler/scheduler-output.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import { ViewedPool } from "../vision/feature-pool.ts";
import { BoundedCache } from "./bounded-cache.ts";
import { CapturedRun } from "./captured-run.ts";
import { decodeBounds, decodeShape, paddedColumns, paddedSequences, sequenceCountsUpTo } from "./decode-buckets.ts";
import type { Decoder, DecoderRun, LogitsTarget, TokenSpan } from "./decoder.ts";
import { draftObstacles } from "./draft-obstacle.ts";
import { planFp8Runs } from "./fp8-runs.ts";
import {
  fillPackedInputs,
  fillScratchInputs,
  fillStateRows,
  packedLayouts,
  placeEmbeddings,
  shapeOfSpans,
} from "./packed-inputs.ts";
import type { PackedShape } from "./packed-inputs.ts";
import { PackedRun } from "./packed-run.ts";
import type { AttentionBounds, PackedRunParts } from "./packed-run.ts";
import { numSpareRows, RunLogits } from "./run-logits.ts";
import { regionBytes, StepMemory } from "./step-memory.ts";

export interface PagedDecoderLimits {
  readonly maxNumTokens: number;
  readonly maxNumSequences: number;
  /** Tokens of the longest sequence. */
  readonly maxLen: number;
  /** Whether every step runs as it is: without padding and captured graphs. */
  readonly isEager: boolean;
}

/** Bindings of shapes hold native handles for the KV of every layer; captured graphs hold device memory. */
const MAX_CACHED_RUNS = 64;

/** Means "no graph". */
const eagerGraphId = "-1";

/** Mutable; owns the session and the KV memory. */
export class PagedDecoder implements Decoder {
  /** Blocks are shared, not moved. */
  readonly canTransfer = false;
  readonly canRepeat = true;
  readonly featurePool: ViewedPool | null;
  readonly runsPromptsApart = false;
  readonly #graph: DecoderGraph;
  readonly #blockSize: number;
  readonly #maxLen: number;
  readonly #isEager: boolean;
  /** Null without recurrent layers. */
  readonly #states: { readonly cache: StateCache; readonly newestRows: NewestRows } | null;
  readonly #parts: PackedRunParts;
  readonly #logits: RunLogits;
  readonly #eagerRuns = new BoundedCache<string, PackedRun>(MAX_CACHED_RUNS);
  /** By shape and bounds. Their number is bounded by the buckets. */
  readonly #decodeRuns = new Map<string, DecodeRun>();
  readonly #owned = new DisposableStack();

  /**
   * Takes ownership of the session and the pool if it returns.
   *
   * @throws EngineError `invalid_configuration` if the KV cache does not fit.
   */
  constructor(
    graph: DecoderGraph,
    session: Session,
    capacity: KvCapacity,
    limits: PagedDecoderLimits,
    featurePool: ViewedPool | null,
  ) {
    using owned = new DisposableStack();
    const kvView = owned.use(allocateBlocks(session, graph, capacity));
    const { recurrent } = graph;
    const numRows = numStateRows(limits.maxNumSequences);
    const cache = recurrent === undefined ? null : owned.use(new StateCache(session, recurrent, numRows));
    cache?.clear(ZERO_STATE_ROW);
    const stateView = cache === null ? null : owned.use(cache.view(0, numRows));
    this.#states = cache === null ? null : { cache, newestRows: new NewestRows(limits.maxNumSequences) };
    this.#parts = createParts(graph, session, { kvView, stateView }, capacity.blockSize, limits, featurePool, owned);
    this.#graph = graph;
    this.#blockSize = capacity.blockSize;
    this.#maxLen = limits.maxLen;
    this.#isEager = limits.isEager;
    this.#logits = this.#parts.logits;
    this.featurePool = featurePool;
    this.#owned.use(session);
    this.#owned.use(featurePool);
    this.#owned.use(owned.move());
    this.#owned.use(this.#eagerRuns);
    this.#owned.defer(() => {
      for (const decode of this.#decodeRuns.values()) decode[Symbol.dispose]();
    });
  }

  get draftObstacle(): string | null {
    return this.#states === null ? null : draftObstacles.recurrent;
  }

  /** Restores the states of a sequence. */
  transfer(transfer: SlotTransfer): void {
    invariant(transfer.kind === "state" && this.#states !== null, "KV is moved between slots in a paged cache");
    this.#states.cache.copy(transfer.fromRow, transfer.toRow);
    this.#states.newestRows.restore(transfer.toRow);
  }

  planRuns(decodes: readonly Sequence[], chunks: readonly PrefillChunk[]): readonly DecoderRun[] {
    if (this.#graph.storesFp8 === true) return planFp8Runs(decodes, chunks, this.#maxLen);
    return decodes.length + chunks.length === 0 ? [] : [{ decodes, chunks }];
  }

  compute(spans: readonly TokenSpan[], { rows, step }: LogitsTarget): void {
    if (!this.#isEager && step?.firstRow === 0 && spans.every(isDecode)) this.#decode(spans);
    else this.#computeEagerly(spans, step?.firstRow ?? this.#logits.spareRow);
    this.#keepStates(spans);
    if (step === null) this.#logits.read(this.#logits.spareRow, rows);
    else
      step.logits.defer(step.firstRow, rows.length / outputWidthOf(this.#graph), this.#logits.deferred(step.firstRow));
  }

  /**
   * Computes each number of sequences with short block tables twice, the largest first, on the scratch block. On CUDA
   * the second time captures a graph, so that no request waits for it. Wider tables are captured when they are used: the
   * scratch block has one token, fewer than the lower bound with which such a graph is captured.
   */
  warmUp(): void {
    const numColumns = paddedColumns(1);
    for (const numSequences of sequenceCountsUpTo(this.#logits.spareRow).toReversed()) {
      const shape = { numTokens: numSequences, numSequences, numColumns, numRows: numSequences };
      const decode = this.#decodeRunOf(shape, 1);
      for (let use = 0; use < 2; use++) {
        fillPackedInputs(decode.run.inputs, shape, [], this.#graph);
        this.#prepareStates(decode.run, []);
        decode.compute();
      }
    }
  }

  [Symbol.dispose](): void {
    this.#owned.dispose();
  }

  #decode(spans: readonly TokenSpan[]): void {
    const shape = decodeShape(shapeOfSpans(spans, this.#blockSize));
    const decode = this.#decodeRunOf(shape, longestLength(spans));
    fillPackedInputs(decode.run.inputs, shape, spans, this.#graph);
    this.#prepareStates(decode.run, spans);
    decode.compute();
  }

  #prepareStates({ inputs, shape }: PackedRun, spans: readonly TokenSpan[]): void {
    if (this.#states === null) return;
    fillStateRows(inputs, shape, spans, this.#states.newestRows);
  }

  /** After a run that succeeded. */
  #keepStates(spans: readonly TokenSpan[]): void {
    if (this.#states === null) return;
    const { cache, newestRows } = this.#states;
    for (const { sequence, endToken } of spans) {
      newestRows.advance(sequence.statePair!);
      const row = sequence.snapshotRows.get(endToken);
      if (row !== undefined) cache.copy(newestRows.read(sequence.statePair!), row);
    }
  }

  #decodeRunOf(shape: PackedShape, longest: number): DecodeRun {
    const bounds = decodeBounds(shape, this.#blockSize, longest);
    const key = `${shape.numSequences}x${shape.numColumns}x${bounds.minLongestLength}`;
    let decode = this.#decodeRuns.get(key);
    if (decode === undefined) {
      const graphId = this.#parts.eagerOptions === null ? null : this.#decodeRuns.size + 1;
      // Another thread's copy would break the capture.
      const mayCapture = (): boolean => this.featurePool?.isBeingRead !== true;
      decode = new DecodeRun(new PackedRun(this.#parts, shape, 0), bounds, graphId, mayCapture);
      this.#decodeRuns.set(key, decode);
    }
    return decode;
  }

  #computeEagerly(spans: readonly TokenSpan[], wantedRow: number): void {
    const shape = shapeOfSpans(spans, this.#blockSize);
    const hasRows = spans.some(({ numLogits }) => numLogits > 0);
    const firstRow = hasRows ? wantedRow : this.#logits.spareRow;
    const { numTokens, numSequences, numColumns, numRows } = shape;
    const key = [numTokens, numSequences, numColumns, numRows, firstRow].join(",");
    const run = this.#eagerRuns.getOrCreate(key, () => new PackedRun(this.#parts, shape, firstRow));
    fillPackedInputs(run.inputs, shape, spans, this.#graph);
    this.#prepareStates(run, spans);
    const maxLength = longestLength(spans);
    const maxNewTokens = Math.max(...spans.map(({ firstToken, endToken }) => endToken - firstToken));
    run.setBounds({ maxNewTokens, maxLength, minLongestLength: maxLength });
    if (this.featurePool !== null) placeEmbeddings(run.inputs, spans, this.featurePool);
    run.run(null);
  }
}

function longestLength(spans: readonly TokenSpan[]): number {
  return Math.max(...spans.map(({ endToken }) => endToken));
}

/** Mutable: a padded shape with its bounds, and the CUDA graph that is captured of it. */
class DecodeRun implements Disposable {
  readonly run: PackedRun;
  readonly #graph: RunOptions | null;
  readonly #captured: CapturedRun;

  /** @param graphId Null if the session captures no graphs. ONNX Runtime reserves 0. */
  constructor(run: PackedRun, bounds: AttentionBounds, graphId: number | null, mayCapture: () => boolean) {
    this.run = run;
    this.#graph = graphId === null ? null : new RunOptions({ gpu_graph_id: String(graphId) });
    this.#captured = new CapturedRun((graph) => run.run(graph), this.#graph, mayCapture);
    run.setBounds(bounds);
  }

  compute(): void {
    this.#captured.run();
  }

  [Symbol.dispose](): void {
    this.run[Symbol.dispose]();
    this.#graph?.[Symbol.dispose]();
  }
}

/**
 * Runs the largest step, all in the scratch block: as many tokens, sequences and rows of logits as a step may have. One
 * sequence has its full length, which always fits, and as many of the tokens as possible; the others begin. Afterwards
 * the device has allocated the memory of its largest run. With FP8 these are the two largest runs: see `planFp8Runs`.
 */
export function runOnScratchBlock(
  graph: DecoderGraph,
  session: Session,
  blockSize: number,
  limits: PagedDecoderLimits,
  featurePool: ViewedPool | null,
): void {
  using owned = new DisposableStack();
  const { maxLen } = limits;
  const kvView = owned.use(allocateBlocks(session, graph, { blockSize, numBlocks: 1 }));
  const stateView = graph.recurrent === undefined ? null : scratchStates(session, graph.recurrent, owned);
  const parts = createParts(graph, session, { kvView, stateView }, blockSize, limits, featurePool, owned);
  for (const lengths of graph.storesFp8 === true ? largestRuns(limits) : [largestStep(limits)]) {
    const numTokens = lengths.reduce((sum, length) => sum + length, 0);
    const shape = {
      numTokens,
      numSequences: lengths.length,
      numColumns: Math.ceil(maxLen / blockSize),
      // Padded steps, and rows of prompts, which are those of one sequence.
      numRows: Math.max(paddedSequences(limits.maxNumSequences), Math.min(numTokens, numSpareRows(graph, numTokens))),
    };
    using run = new PackedRun(parts, shape, 0);
    fillScratchInputs(run.inputs, lengths, maxLen - lengths[0]!);
    run.setBounds({ maxNewTokens: lengths[0]!, maxLength: maxLen, minLongestLength: maxLen });
    run.run(null);
  }
}

/** Of the scratch pair. */
function scratchStates(session: Session, recurrent: RecurrentShape, owned: DisposableStack): StateView {
  const cache = owned.use(new StateCache(session, recurrent, SCRATCH_STATE_ROW + 1));
  cache.clear(ZERO_STATE_ROW);
  return owned.use(cache.view(0, SCRATCH_STATE_ROW + 1));
}

/** New tokens of each sequence. */
function largestStep({ maxNumTokens, maxNumSequences, maxLen }: PagedDecoderLimits): number[] {
  const lengths = Array.from({ length: Math.min(maxNumSequences, maxNumTokens) }, () => 1);
  let numLeft = maxNumTokens - lengths.length;
  for (let index = 0; index < lengths.length; index++) {
    const numMore = Math.min(numLeft, maxLen - 1);
    lengths[index] = 1 + numMore;
    numLeft -= numMore;
  }
  return lengths;
}

/** New tokens of each sequence in the largest run of newest tokens, and of prompts: see `planFp8Runs`. */
function largestRuns({ maxNumTokens, maxNumSequences, maxLen }: PagedDecoderLimits): number[][] {
  return [Array.from({ length: Math.min(maxNumSequences, maxNumTokens) }, () => 1), [Math.min(maxNumTokens, maxLen)]];
}

/** Everything is disposed of with `owned`. */
function createParts(
  graph: DecoderGraph,
  session: Session,
  { kvView, stateView }: Pick<PackedRunParts, "kvView" | "stateView">,
  blockSize: number,
  { maxNumTokens, maxNumSequences, maxLen, isEager }: PagedDecoderLimits,
  featurePool: ViewedPool | null,
  owned: DisposableStack,
): PackedRunParts {
  const maxRows = paddedSequences(maxNumSequences);
  const largest = {
    numTokens: Math.max(maxNumTokens, maxRows),
    numSequences: maxRows,
    numColumns: paddedColumns(Math.ceil(maxLen / blockSize)),
    numRows: Math.max(maxNumTokens, maxRows),
  };
  const inputMemory = owned.use(new StepMemory(session, regionBytes(packedLayouts(largest))));
  const logits = owned.use(new RunLogits(session, graph, maxRows, numSpareRows(graph, maxNumTokens)));
  const capturesGraphs = session.device === "cuda" && !isEager;
  return {
    session,
    graph,
    kvView,
    stateView,
    inputMemory,
    logits,
    featurePool,
    eagerOptions: capturesGraphs ? owned.use(new RunOptions({ gpu_graph_id: eagerGraphId })) : null,
  };
}

/** Null for a text model. The caller disposes of it. */
export function createFeaturePool(
  { acceptsImages, imageWidth }: Pick<DecoderGraph, "acceptsImages" | "imageWidth">,
  session: Session,
  { maxNumTokens }: Pick<PagedDecoderLimits, "maxNumTokens">,
  maxEmbeddingsPerImage: number,
): ViewedPool | null {
  if (!acceptsImages) return null;
  const { maxNumEmbeddings } = planEncoderCache(imageWidth, maxEmbeddingsPerImage);
  return new ViewedPool(session, { width: imageWidth, numRows: maxNumEmbeddings, maxRunRows: maxNumTokens });
}

function isDecode({ sequence }: TokenSpan): boolean {
  return !sequence.isPrefilling;
}
