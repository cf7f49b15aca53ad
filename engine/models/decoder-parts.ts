/** Parts shared by the decoder graphs of all families: the inputs of `DecoderGraph`, embeddings, cache and head. */
import { groupQueryAttention, type RotaryTables } from "../graph/contrib-ops.ts";
import {
  add,
  cast,
  concat,
  gatherRows,
  range,
  reshape,
  scatterRows,
  shapeOf,
  subtract,
} from "../graph/standard-ops.ts";
import type { Value } from "../graph/value.ts";
import { logitRows, type GraphContext } from "./graph-context.ts";
import { linear } from "./linear.ts";

// Names of sizes that are known only at run time; see `DecoderGraph`.
export const batch = "B";
export const length = "S";
export const tokens = "N";
export const imageTokens = "M";
export const cacheLength = "maxLen";

export interface DecoderInputs {
  /** int64 [B, S]. */
  readonly inputIds: Value;
  /** int64 [2]: B, S. */
  readonly inputShape: Value;
  /** int64 [3]: B, S, -1. */
  readonly batchShape: Value;
  readonly seqlensK: Value;
  readonly totalSequenceLength: Value;
  readonly logitRows: Value;
}

export function createDecoderInputs({ graph }: GraphContext): DecoderInputs {
  const inputIds = graph.input("input_ids", "int64", [batch, length]);
  const inputShape = shapeOf(graph, "input_ids.shape", inputIds);
  const anySize = graph.constant("any_size", "int64", [1], [-1]);
  return {
    inputIds,
    inputShape,
    batchShape: concat(graph, "batch_shape", [inputShape, anySize], 0),
    seqlensK: graph.input("seqlens_k", "int32", [batch]),
    totalSequenceLength: graph.input("total_sequence_length", "int32", []),
    logitRows: graph.input("logit_rows", "int64", [logitRows]),
  };
}

/** Reshapes flat rows [N, features] to [B, S, features]. */
export function batched({ graph }: GraphContext, { batchShape }: DecoderInputs, name: string, flat: Value): Value {
  return reshape(graph, name, flat, batchShape, [batch, length, flat.shape[1]]);
}

/** int64 [B, S]: the last of a sequence's S tokens has position `seqlens_k`. */
export function tokenPositions({ graph }: GraphContext, { seqlensK, inputShape }: DecoderInputs): Value {
  const one = graph.constant("int64.scalar.1", "int64", [], [1]);
  const numTokens = gatherRows(graph, "input_ids.length", inputShape, one);
  const offsets = range(graph, "positions.offsets", numTokens, length);
  const last = cast(graph, "positions.last", seqlensK, "int64");
  const first = subtract(graph, "positions.first", last, subtract(graph, "positions.span", numTokens, one));
  const columnShape = graph.constant("column_shape", "int64", [2], [-1, 1]);
  const column = reshape(graph, "positions.column", first, columnShape, [batch, 1]);
  return add(graph, "positions", column, offsets);
}

/** Decoders' names for the sizes of the vocabulary and its embeddings. */
export interface VocabularySize {
  readonly vocabSize: number;
  readonly hiddenSize: number;
}

/** [N, hiddenSize]: token embeddings, with image embeddings in the rows of `image_positions`. */
export function embedTokens(
  { graph, weights, precision }: GraphContext,
  inputIds: Value,
  {
    tableName,
    size,
    acceptsImages,
  }: { readonly tableName: string; readonly size: VocabularySize; readonly acceptsImages: boolean },
): Value {
  const tableShape = [size.vocabSize, size.hiddenSize];
  // Stored as in the checkpoint, even if the rest is quantised: a token reads one row, so a smaller type gains nothing,
  // and mapped memory is committed only for the rows that are read.
  const format = { kind: "plain", elementType: precision.activations } as const;
  const tableTensor =
    weights.stored(tableName, tableShape) ??
    weights.prepared({ name: "embedding_table", sources: [tableName], shape: tableShape, format }).weight;
  const table = graph.externalTensor("embedding_table", tableTensor);
  const anySize = graph.constant("any_size", "int64", [1], [-1]);
  const flatIds = reshape(graph, "input_ids.flat", inputIds, anySize, [tokens]);
  const gathered = gatherRows(graph, "embedded", table, flatIds);
  const embedded = cast(graph, "embedded.cast", gathered, precision.activations);
  if (!acceptsImages) return embedded;
  const imageEmbeds = graph.input("image_embeds", "float32", [imageTokens, size.hiddenSize]);
  const imagePositions = graph.input("image_positions", "int64", [imageTokens, 1]);
  const updates = cast(graph, "image_embeds.cast", imageEmbeds, precision.activations);
  return scatterRows(graph, "embedded.with_images", embedded, imagePositions, updates);
}

export interface CachedAttention {
  readonly name: string;
  readonly layer: number;
  /** [B, S, numHeads * headDim], or packed query, key and value, with the other two null. */
  readonly query: Value;
  readonly key: Value | null;
  readonly value: Value | null;
  /** Null if query and key are already rotated. */
  readonly rotary: RotaryTables | null;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly localWindowSize: number | null;
  /** Factor of the products of query and key; null means `1 / sqrt(headDim)`. */
  readonly scale: number | null;
}

/** [N, numHeads * headDim], before the output projection. The layer's cache becomes inputs and outputs of the graph. */
export function attendToCache(
  context: GraphContext,
  { seqlensK, totalSequenceLength }: DecoderInputs,
  { name, layer, ...attention }: CachedAttention,
): Value {
  const { graph, precision } = context;
  const { numHeads, numKvHeads, headDim } = attention;
  const past = (part: string): Value =>
    graph.input(`past.${layer}.${part}`, precision.activations, [batch, numKvHeads, cacheLength, headDim]);
  const { output, presentKey, presentValue } = groupQueryAttention(graph, name, {
    ...attention,
    seqlensK,
    totalSequenceLength,
    headSink: context.device === "cpu" ? emptySink(context, numHeads) : null,
    pastKey: past("key"),
    pastValue: past("value"),
    presentKeyName: `present.${layer}.key`,
    presentValueName: `present.${layer}.value`,
  });
  graph.output(presentKey);
  graph.output(presentValue);
  const flatShape = graph.constant("attention.flat_shape", "int64", [2], [-1, numHeads * headDim]);
  return reshape(graph, `${name}.flat`, output, flatShape, [tokens, numHeads * headDim]);
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

/** Computes `logits` float32 [R, vocabSize] from the rows' hidden states. */
export function outputLogits(context: GraphContext, input: Value, name: string, size: VocabularySize): void {
  const { graph, precision } = context;
  const { hiddenSize: inFeatures, vocabSize: outFeatures } = size;
  const layer = { name, inFeatures, outFeatures, hasBias: false };
  const logits =
    precision.activations === "float32"
      ? linear(context, input, layer, precision.head, "logits")
      : cast(graph, "logits", linear(context, input, layer, precision.head), "float32");
  graph.output(logits, [logitRows, outFeatures]);
}
