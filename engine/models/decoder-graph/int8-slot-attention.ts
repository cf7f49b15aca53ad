/**
 * Attention over KV slots of 8 bits, with a step for each channel of keys and values.
 *
 * ONNX Runtime's kernel reads such a cache twice as fast as one of floats where many sequences compute one token each, but
 * computes prompts four times as slowly. A chunk of a prompt therefore attends in floats: its own keys and values and those
 * before it, all with the values that the cache holds, so that the size of chunks changes no result.
 */
import { invariant } from "../../contract/errors.ts";
import { groupQueryAttention } from "../../graph/contrib-ops.ts";
import { choose } from "../../graph/control-flow-ops.ts";
import { quantizeLinearPerChannel, sliceBefore, tensorScatter } from "../../graph/kv-cache-ops.ts";
import { int64Scalar, int64Vector } from "../../graph/shape-ops.ts";
import { cast, gatherRows, multiply, reshape, subtract, transpose, add } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { presentName } from "../decoder-shape.ts";
import type { GraphContext } from "../graph-context.ts";
import { attendToChunkInPieces, chunkPieces, type ChunkPieces } from "./chunk-pieces.ts";
import type { CachedAttention } from "./decoder-inputs.ts";
import { isChunk } from "./run-kinds.ts";
import { batch, pastTokens, presentTokens } from "./sizes.ts";
import { attentionRotates, queryKeyValue, rotaryRows, type SlotValues } from "./slot-projections.ts";

/** Inputs of attention that are the same in all layers. */
export interface RunShape {
  /** bool []: whether the run computes a chunk of a prompt; null in a graph for newest tokens only. */
  readonly isChunk: Value | null;
  /** int64 [B]: tokens of each sequence before the run. */
  readonly numPastTokens: Value;
  /** int64 [1]: the same for all sequences of a chunk's run. */
  readonly numPastOfAll: Value;
  /** Null in a graph for newest tokens only. */
  readonly pieces: ChunkPieces | null;
}

export function runShape(context: GraphContext, values: SlotValues): RunShape {
  const { graph } = context;
  const { inputShape, seqlensK, prefix } = values;
  const mayBeChunk = context.runKind === "any";
  const one = int64Scalar(graph, 1);
  const numTokens = gatherRows(graph, `${prefix}run.length`, inputShape, one);
  const last = cast(graph, `${prefix}run.last`, seqlensK, "int64");
  const numPast = subtract(graph, `${prefix}run.num_past`, add(graph, `${prefix}run.total`, last, one), numTokens);
  const first = int64Vector(graph, 0);
  return {
    isChunk: mayBeChunk ? isChunk(context, prefix) : null,
    numPastTokens: numPast,
    numPastOfAll: gatherRows(graph, `${prefix}run.num_past.first`, numPast, first),
    pieces: mayBeChunk ? chunkPieces(context, values, numTokens) : null,
  };
}

interface SlotCache {
  /** int8 [B, numKvHeads, maxLen, headDim]. */
  readonly pastKey: Value;
  readonly pastValue: Value;
  readonly headSink: Value | null;
  readonly run: RunShape;
}

interface Projections {
  readonly query: Value;
  readonly key: Value | null;
  readonly value: Value | null;
}

export function attendToInt8Cache(
  context: GraphContext,
  values: SlotValues,
  attention: CachedAttention,
  cache: SlotCache,
): ReturnType<typeof groupQueryAttention> {
  const { name, layer, rotary } = attention;
  const { isChunk: condition } = cache.run;
  const steps = stepsOf(context, attention);
  const rotatesInside = attentionRotates(attention);
  // Computed here, because a branch keeps its values to itself.
  if (rotary !== null) rotaryRows(context, values, rotary.rowOf);
  const rotated = rotatesInside ? null : queryKeyValue(context, values, attention, false);
  const ofChunk = (): readonly Value[] =>
    attendToChunk(context, values, attention, {
      ...cache,
      steps,
      projections: rotated ?? queryKeyValue(context, values, attention, false),
    });
  const ofNewest = (): readonly Value[] => {
    const attended = groupQueryAttention(context.graph, name, {
      ...attention,
      ...cache,
      ...(rotated ?? queryKeyValue(context, values, attention, true)),
      rotary: rotatesInside && rotary !== null ? rotary.tables : null,
      kvScales: steps,
      seqlensK: values.seqlensK,
      totalSequenceLength: values.totalSequenceLength,
      presentKeyName: presentName(layer, "key", attention.reader),
      presentValueName: presentName(layer, "value", attention.reader),
    });
    return [attended.output, attended.presentKey, attended.presentValue];
  };
  const names = [
    `${name}.batched`,
    presentName(layer, "key", attention.reader),
    presentName(layer, "value", attention.reader),
  ] as const;
  const [output, presentKey, presentValue] =
    condition === null
      ? ofNewest()
      : choose(context.graph, `${name}.run`, { names, condition, chosen: ofChunk, other: ofNewest });
  return {
    output: flat(context, values, attention, name, output!),
    presentKey: presentKey!,
    presentValue: presentValue!,
  };
}

/**
 * Codes are multiplied as they are: the query contains the steps of the keys, and the output is multiplied by those of the
 * values.
 */
function attendToChunk(
  context: GraphContext,
  values: SlotValues,
  attention: CachedAttention,
  {
    projections: { query, key, value },
    steps,
    run,
    ...cache
  }: SlotCache & { readonly projections: Projections; readonly steps: { readonly key: Value; readonly value: Value } },
): readonly Value[] {
  const { graph } = context;
  const { name, layer, numKvHeads, headDim } = attention;
  invariant(key !== null && value !== null, "a chunk's keys and values are separate");
  const throughCache = (
    part: "key" | "value",
    rows: Value,
    past: Value,
  ): { own: Value; past: Value; present: Value } => {
    const codes = quantizeLinearPerChannel(graph, `${name}.${part}.codes`, rows, steps[part]);
    const before = sliceBefore(graph, `${name}.${part}.past`, past, {
      axis: 2,
      end: run.numPastOfAll,
      size: pastTokens,
    });
    return {
      own: cast(graph, `${name}.${part}.own`, codes, "float32"),
      past: cast(graph, `${name}.${part}.past.floats`, before, "float32"),
      present: tensorScatter(graph, presentName(layer, part, attention.reader), {
        cache: past,
        updates: byHead(context, `${name}.${part}.updates`, codes, numKvHeads, headDim),
        starts: run.numPastTokens,
      }),
    };
  };
  const keys = throughCache("key", key, cache.pastKey);
  const valueRows = throughCache("value", value, cache.pastValue);
  const inputs = {
    ...attention,
    query: multiply(graph, `${name}.query.in_steps`, query, repeated(context, attention, "key")),
    key: keys.own,
    value: valueRows.own,
    pastKey: keys.past,
    pastValue: valueRows.past,
    presentLength: presentTokens,
    rotary: null,
    headSink: cache.headSink,
    seqlensK: values.seqlensK,
    totalSequenceLength: values.totalSequenceLength,
    presentKeyName: `${name}.key.all`,
    presentValueName: `${name}.value.all`,
  };
  invariant(run.pieces !== null, "a graph with chunks divides them");
  const output = attendToChunkInPieces(context, `${name}.attended`, inputs, run.pieces);
  const scaled = multiply(graph, `${name}.output`, output, repeated(context, attention, "value"));
  return [scaled, keys.present, valueRows.present];
}

/** [N, numHeads * headDim]. */
export function flat(
  { graph }: GraphContext,
  { sizes }: SlotValues,
  { numHeads, headDim }: CachedAttention,
  name: string,
  rows: Value,
): Value {
  const shape = graph.constant(`any_by.${numHeads * headDim}`, "int64", [2], [-1, numHeads * headDim]);
  return reshape(graph, `${name}.flat`, rows, shape, [sizes.tokens, numHeads * headDim]);
}

/** [B, S, heads * headDim] as [B, heads, S, headDim]. */
function byHead({ graph }: GraphContext, name: string, rows: Value, numHeads: number, headDim: number): Value {
  const shape = graph.constant(`by_head.${numHeads}.${headDim}`, "int64", [4], [0, 0, numHeads, headDim]);
  const heads = reshape(graph, `${name}.heads`, rows, shape, [batch, rows.shape[1]!, numHeads, headDim]);
  return transpose(graph, name, heads, [0, 2, 1, 3]);
}

/** float32 [numKvHeads * headDim] each. */
function stepsOf(
  context: GraphContext,
  { layer, numKvHeads, headDim }: CachedAttention,
): { readonly key: Value; readonly value: Value } {
  const width = numKvHeads * headDim;
  const step = (part: "key" | "value"): Value =>
    context.graph.constant(
      `kv_steps.${layer}.${part}`,
      "float32",
      [width],
      [...stepValues(context, layer, part, width)],
    );
  return { key: step("key"), value: step("value") };
}

/** The steps once for each head that reads them: float32 [numHeads * headDim]. */
function repeated(
  context: GraphContext,
  { layer, numHeads, numKvHeads, headDim }: CachedAttention,
  part: "key" | "value",
): Value {
  const steps = stepValues(context, layer, part, numKvHeads * headDim);
  const numReaders = numHeads / numKvHeads;
  const values = Array.from({ length: numHeads * headDim }, (_, channel) => {
    const head = Math.floor(channel / headDim / numReaders);
    return steps[head * headDim + (channel % headDim)]!;
  });
  return context.graph.constant(`kv_steps.${layer}.${part}.by_head`, "float32", [values.length], values);
}

/** Ones before the steps are measured: then only names and shapes matter. */
function stepValues({ kvPrecision }: GraphContext, layer: number, part: "key" | "value", width: number): Float32Array {
  const steps = kvPrecision.kind === "int8" ? kvPrecision.steps : null;
  if (steps === null) return new Float32Array(width).fill(1);
  return steps[2 * layer + (part === "key" ? 0 : 1)]!;
}
