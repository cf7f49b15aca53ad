/** Decoding over KV slots: each sequence has a cache of the full length, and attention is one node per layer. */
import { groupQueryAttention, rotaryEmbedding, ROTARY_HEAD_MULTIPLE } from "../../graph/contrib-ops.ts";
import {
  add,
  cast,
  concat,
  expand,
  gatherRows,
  range,
  reshape,
  scatterRows,
  shapeOf,
  split,
  subtract,
} from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { logitRows, type GraphContext } from "../graph-context.ts";
import { separate } from "../linear.ts";
import type { CachedAttention, DecoderInputs, Rotary } from "./decoder-inputs.ts";
import { headWidths, rotaryDimOf } from "./heads.ts";
import { batch, cacheLength, imageTokens, length, tokens } from "./sizes.ts";
import { attendToWholeImages, createImageRows, type ImageRows } from "./whole-image-attention.ts";

interface SlotValues {
  /** int64 [N]. */
  readonly tokenIds: Value;
  /** int64 [2]: B, S. */
  readonly inputShape: Value;
  /** int64 [3]: B, S, -1. */
  readonly batchShape: Value;
  /** int32 [B]: tokens of each sequence after this run, minus one. */
  readonly seqlensK: Value;
  readonly totalSequenceLength: Value;
  /** int64 [B, S] for each kind that a layer uses: rows of the rotary tables. */
  readonly rotaryRows: Map<Rotary["rowOf"], Value>;
  /** int64 [M, 1]: rows of image tokens; null in a graph without images. */
  imagePositions: Value | null;
  /** Of `imagePositions`, once a layer needs them. */
  imageRows: ImageRows | null;
}

export function createSlotInputs(context: GraphContext): DecoderInputs {
  const { graph } = context;
  const inputIds = graph.input("input_ids", "int64", [batch, length]);
  const inputShape = shapeOf(graph, "input_ids.shape", inputIds);
  const anySize = graph.constant("any_size", "int64", [1], [-1]);
  const values: SlotValues = {
    tokenIds: reshape(graph, "input_ids.flat", inputIds, anySize, [tokens]),
    inputShape,
    batchShape: concat(graph, "batch_shape", [inputShape, anySize], 0),
    seqlensK: graph.input("seqlens_k", "int32", [batch]),
    totalSequenceLength: graph.input("total_sequence_length", "int32", []),
    rotaryRows: new Map(),
    imagePositions: null,
    imageRows: null,
  };
  return {
    tokenIds: values.tokenIds,
    logitRows: graph.input("logit_rows", "int64", [logitRows]),
    withImages(embedded, numLevels) {
      const width = Number(embedded.shape[1]);
      const imageEmbeds = graph.input("image_embeds", "float32", [imageTokens, (1 + numLevels) * width]);
      const imagePositions = graph.input("image_positions", "int64", [imageTokens, 1]);
      values.imagePositions = imagePositions;
      const rows = cast(graph, "image_embeds.cast", imageEmbeds, embedded.elementType);
      const place = (name: string, data: Value, updates: Value): Value =>
        scatterRows(graph, name, data, imagePositions, updates);
      if (numLevels === 0) return { embedded: place("embedded.with_images", embedded, rows), levels: [] };
      const sizes = Array.from({ length: 1 + numLevels }, () => width);
      const [first, ...others] = split(graph, "image_embeds.levels", rows, { axis: 1, sizes });
      const zero = graph.constant("image_levels.zero", context.precision.activations, [1, 1], [0]);
      const shape = shapeOf(graph, "embedded.shape", embedded);
      const none = expand(graph, "image_levels.none", zero, shape, embedded.shape);
      return {
        embedded: place("embedded.with_images", embedded, first!),
        levels: others.map((updates, level) => place(`image_levels.${level}`, none, updates)),
      };
    },
    attend: (attention) => attend(context, values, attention),
  };
}

function attend(context: GraphContext, values: SlotValues, attention: CachedAttention): Value {
  const { graph, precision } = context;
  const { name, layer, rotary, numHeads, numKvHeads, headDim, localWindowSize, scale } = attention;
  const past = (part: string): Value =>
    graph.input(`past.${layer}.${part}`, precision.activations, [batch, numKvHeads, cacheLength, headDim]);
  const rotatesInside =
    rotary.rowOf === "position" && rotaryDimOf(rotary) === headDim && headDim % ROTARY_HEAD_MULTIPLE === 0;
  const { output, presentKey, presentValue } = groupQueryAttention(graph, name, {
    ...queryKeyValue(context, values, attention, rotatesInside),
    rotary: rotatesInside ? rotary.tables : null,
    numHeads,
    numKvHeads,
    headDim,
    localWindowSize,
    scale,
    seqlensK: values.seqlensK,
    totalSequenceLength: values.totalSequenceLength,
    headSink: context.device === "cpu" ? emptySink(context, numHeads) : null,
    pastKey: past("key"),
    pastValue: past("value"),
    presentKeyName: `present.${layer}.key`,
    presentValueName: `present.${layer}.value`,
  });
  graph.output(presentKey);
  graph.output(presentValue);
  const flatShape = graph.constant("attention.flat_shape", "int64", [2], [-1, numHeads * headDim]);
  const causal = reshape(graph, `${name}.flat`, output, flatShape, [tokens, numHeads * headDim]);
  const { imagePositions } = values;
  if (attention.seesWholeImages !== true || imagePositions === null) return causal;
  values.imageRows ??= createImageRows(context, { ...values, imagePositions });
  const [query] = separate(graph, `${name}.qkv`, attention.projected, headWidths(attention));
  return attendToWholeImages(context, attention, values.imageRows, {
    causal,
    query,
    present: [presentKey, presentValue],
  });
}

/** [B, S, features] each; or packed, with the other two null, if attention splits and rotates by itself. */
function queryKeyValue(
  context: GraphContext,
  values: SlotValues,
  attention: CachedAttention,
  rotatesInside: boolean,
): { readonly query: Value; readonly key: Value | null; readonly value: Value | null } {
  const { graph } = context;
  const { name, projected, rotary } = attention;
  const batched = (part: string, flat: Value): Value =>
    reshape(graph, `${name}.${part}.batched`, flat, values.batchShape, [batch, length, flat.shape[1]!]);
  if (projected.kind === "packed" && rotatesInside) {
    return { query: batched("qkv", projected.value), key: null, value: null };
  }
  const [query, key, value] = separate(graph, `${name}.qkv`, projected, headWidths(attention));
  const rotated = (part: string, flat: Value, numHeads: number): Value => {
    const input = batched(part, flat);
    if (rotatesInside) return input;
    const positions = rotaryRows(context, values, rotary.rowOf);
    return rotaryEmbedding(graph, `${name}.${part}.rotated`, { input, positions, numHeads, ...rotary.tables });
  };
  return {
    query: rotated("query", query, attention.numHeads),
    key: rotated("key", key, attention.numKvHeads),
    value: batched("value", value),
  };
}

function rotaryRows(context: GraphContext, values: SlotValues, rowOf: Rotary["rowOf"]): Value {
  const known = values.rotaryRows.get(rowOf);
  if (known !== undefined) return known;
  const rows = rowOf === "position" ? tokenPositions(context, values) : tokenRows(context, values);
  values.rotaryRows.set(rowOf, rows);
  return rows;
}

/** int64 [B, S]: the last of a sequence's S tokens has position `seqlens_k`. */
function tokenPositions({ graph }: GraphContext, { seqlensK, inputShape }: SlotValues): Value {
  const one = graph.constant("int64.scalar.1", "int64", [], [1]);
  const numTokens = gatherRows(graph, "input_ids.length", inputShape, one);
  const offsets = range(graph, "rotary.offsets", numTokens, length);
  const last = cast(graph, "rotary.last", seqlensK, "int64");
  const first = subtract(graph, "rotary.first", last, subtract(graph, "rotary.span", numTokens, one));
  const columnShape = graph.constant("column_shape", "int64", [2], [-1, 1]);
  const column = reshape(graph, "rotary.column", first, columnShape, [batch, 1]);
  return add(graph, "rotary.positions", column, offsets);
}

/** int64 [B, S]: 0 to N - 1. */
function tokenRows({ graph }: GraphContext, { tokenIds, inputShape }: SlotValues): Value {
  const zero = graph.constant("int64.scalar.0", "int64", [], [0]);
  const numTokens = gatherRows(graph, "tokens.count", shapeOf(graph, "tokens.shape", tokenIds), zero);
  const rows = range(graph, "rotary.own_rows.flat", numTokens, tokens);
  return reshape(graph, "rotary.own_rows", rows, inputShape, [batch, length]);
}

/**
 * An attention sink whose share of the softmax is 0. With a sink, ONNX Runtime's CPU kernel avoids its tiled path,
 * which computes sequences of different lengths one after the other, and spreads all heads of all sequences over the
 * threads. Decoding many sequences at once gains far more than long prompts lose.
 */
function emptySink({ graph, precision }: GraphContext, numHeads: number): Value {
  const lowest = Array.from({ length: numHeads }, () => -1e30);
  return graph.constant(`attention.empty_sink.${numHeads}`, precision.activations, [numHeads], lowest);
}
