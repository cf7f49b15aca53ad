/**
 * Runs our graphs over a paged KV cache: prompt chunks and newest tokens of all sequences together, in one run. Each
 * sequence brings its block table, so that no two of them need neighbouring memory.
 */
import type { DeviceName } from "../contract/config.ts";
import { invariant } from "../contract/errors.ts";
import { allocateBlocks } from "../kv/block-cache.ts";
import type { KvCapacity } from "../kv/kv-manager.ts";
import type { DecoderGraph } from "../models/built-model.ts";
import type { Session } from "../runtime/session.ts";

import { Tensor } from "../runtime/tensor.ts";
import type { PrefillChunk } from "../scheduler/scheduler-output.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import { DecoderBinding } from "./decoder-binding.ts";
import type { Decoder, DecoderRun, LogitsTarget, TokenSpan } from "./decoder.ts";
import { PackedBatch } from "./packed-batch.ts";
import { RunLogits } from "./run-logits.ts";
import type { PackedBatchLimits } from "./packed-batch.ts";

/** Block tables have a power of two of columns on a GPU, where kernels and captured graphs depend on their width. */
const MIN_COLUMNS = 8;

/** Mutable; owns the session and the KV memory. */
export class PagedDecoder implements Decoder {
  /** Blocks are shared, not moved. */
  readonly canTransfer = false;
  readonly #graph: DecoderGraph;
  readonly #binding: DecoderBinding;
  readonly #session: Session;
  readonly #batch: PackedBatch;
  readonly #logits: RunLogits;
  readonly #columnsFor: (numBlocks: number) => number;

  /**
   * Throws EngineError `runtime_failed` if the graph does not load, `invalid_configuration` if the KV cache does not
   * fit.
   */
  constructor(graph: DecoderGraph, session: Session, capacity: KvCapacity, limits: PackedBatchLimits) {
    this.#graph = graph;
    this.#batch = new PackedBatch(limits, graph);
    this.#logits = new RunLogits(graph, limits.maxNumSequences);
    this.#session = session;
    this.#binding = new DecoderBinding(session, graph, allocateBlocks(session, graph, capacity));
    this.#columnsFor = session.device === "cpu" ? (numBlocks) => numBlocks : paddedColumns;
  }

  transfer(): void {
    invariant(false, "KV is moved between slots in a paged cache");
  }

  planRuns(decodes: readonly Sequence[], chunks: readonly PrefillChunk[]): readonly DecoderRun[] {
    return decodes.length + chunks.length === 0 ? [] : [{ decodes, chunks }];
  }

  compute(spans: readonly TokenSpan[], { rows, step }: LogitsTarget): void {
    const batch = this.#batch;
    batch.pack(spans, this.#columnsFor);
    bindBatch(this.#binding, batch, this.#graph, this.#session.device);
    const numRows = rows.length / this.#graph.vocabSize;
    if (step === null || numRows === 0) this.#logits.bindOtherRows(this.#binding, rows);
    else this.#logits.bindStepRows(this.#binding, step.firstRow, numRows);
    this.#binding.run();
    step?.logits.defer(step.firstRow, numRows, this.#logits.deferred(step.firstRow));
  }

  [Symbol.dispose](): void {
    this.#binding[Symbol.dispose]();
    this.#session[Symbol.dispose]();
  }
}

function bindBatch(binding: DecoderBinding, batch: PackedBatch, graph: DecoderGraph, device: DeviceName): void {
  const { numTokens, numSequences, numColumns, numLogits } = batch;
  const bindInt64 = (name: string, values: BigInt64Array, shape: readonly number[]): void =>
    binding.setInput(name, Tensor.fromTypedArray("int64", values.subarray(0, numValues(shape)), shape));
  const bindInt32 = (name: string, values: Int32Array, shape: readonly number[]): void =>
    binding.setInput(name, Tensor.fromTypedArray("int32", values.subarray(0, numValues(shape)), shape));
  bindInt64("input_ids", batch.inputIds, [numTokens]);
  bindInt32("cumulative_lengths", batch.cumulativeLengths, [numSequences + 1]);
  bindInt32("past_lengths", batch.pastLengths, [numSequences]);
  bindInt32("block_table", batch.blockTable, [numSequences, numColumns]);
  bindInt64("logit_rows", batch.logitRows, [numLogits]);
  const temperatures = batch.inverseTemperatures.subarray(0, numLogits);
  binding.setInput("inverse_temperature", Tensor.fromTypedArray("float32", temperatures, [numLogits, 1]));
  if (graph.takesPositions) bindInt64("positions", batch.positions, [3, numTokens]);
  if (graph.acceptsImages) {
    bindInt64("image_rows", batch.imageRows, [numTokens]);
    const poolShape = [batch.numPoolRows, graph.hiddenSize];
    binding.setInput("image_pool", Tensor.fromTypedArray("float32", batch.imagePool, poolShape));
  }
  if (device !== "cuda") return;
  // Upper bounds of the new tokens and the length of a sequence, and a lower bound of the longest sequence's length.
  bindInt32("attention_metadata", Int32Array.of(batch.maxSpanLength, batch.maxLength, batch.maxLength), [3]);
}

/**
 * Runs `numTokens` tokens of one sequence, all of whose blocks are the scratch block. The device then has allocated the
 * memory of its largest run.
 */
export function runOnScratchBlock(graph: DecoderGraph, session: Session, blockSize: number, numTokens: number): void {
  const numColumns = Math.ceil(numTokens / blockSize);
  const limits = { maxNumTokens: numTokens, maxNumSequences: 1, maxNumColumns: paddedColumns(numColumns) };
  const blocks = allocateBlocks(session, graph, { blockSize, numBlocks: 1 });
  using binding = new DecoderBinding(session, graph, blocks);
  const batch = new PackedBatch(limits, graph);
  batch.packScratch(numTokens, numColumns);
  bindBatch(binding, batch, graph, session.device);
  new RunLogits(graph, 1).bindStepRows(binding, 0, 1);
  binding.run();
}

function paddedColumns(numBlocks: number): number {
  return Math.max(MIN_COLUMNS, 2 ** Math.ceil(Math.log2(numBlocks)));
}

function numValues(shape: readonly number[]): number {
  return shape.reduce((product, size) => product * size, 1);
}
