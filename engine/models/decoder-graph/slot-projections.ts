/** Queries, keys and values of a run over KV slots, in the shapes and rotations that attention takes. */
import { invariant } from "../../contract/errors.ts";
import { rotaryEmbedding, ROTARY_HEAD_MULTIPLE } from "../../graph/contrib-ops.ts";
import { int64Scalar, reshapeTo } from "../../graph/shape-ops.ts";
import { add, cast, gatherRows, range, reshape, shapeOf, subtract } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { separate } from "../linear.ts";
import type { CachedAttention, Rotary } from "./decoder-inputs.ts";
import { headWidths, rotaryDimOf } from "./heads.ts";
import { batch, length, tokens } from "./sizes.ts";
import type { ImageRows } from "./whole-image-attention.ts";

export interface SlotValues {
  /** Prefix of the names of values that other tokens of the run have too. */
  readonly prefix: string;
  /** Names of the sizes S and N. */
  readonly sizes: { readonly length: string; readonly tokens: string };
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

/** Whether query and key go to attention as they are, because it rotates them or nothing does. */
export function attentionRotates({ rotary, headDim }: CachedAttention): boolean {
  if (rotary === null) return true;
  return rotary.rowOf === "position" && rotaryDimOf(rotary) === headDim && headDim % ROTARY_HEAD_MULTIPLE === 0;
}

/** [B, S, features] each; or packed, with the other two null, if attention splits and rotates by itself. */
export function queryKeyValue(
  context: GraphContext,
  values: SlotValues,
  attention: CachedAttention,
  rotatesInside: boolean,
): { readonly query: Value; readonly key: Value | null; readonly value: Value | null } {
  const { graph } = context;
  const { name, projected, rotary } = attention;
  const batched = (part: string, flat: Value): Value =>
    reshape(graph, `${name}.${part}.batched`, flat, values.batchShape, [batch, values.sizes.length, flat.shape[1]!]);
  if (projected.kind === "packed" && rotatesInside) {
    return { query: batched("qkv", projected.value), key: null, value: null };
  }
  const [query, key, value] = separate(graph, `${name}.qkv`, projected, headWidths(attention));
  const rotated = (part: string, flat: Value, numHeads: number): Value => {
    const input = batched(part, flat);
    if (rotatesInside || rotary === null) return input;
    const positions = rotaryRows(context, values, rotary.rowOf);
    return rotaryEmbedding(graph, `${name}.${part}.rotated`, { input, positions, numHeads, ...rotary.tables });
  };
  return {
    query: rotated("query", query, attention.numHeads),
    key: rotated("key", key, attention.numKvHeads),
    value: batched("value", value),
  };
}

export function rotaryRows(context: GraphContext, values: SlotValues, rowOf: Rotary["rowOf"]): Value {
  const known = values.rotaryRows.get(rowOf);
  if (known !== undefined) return known;
  const rows = rowOf === "position" ? tokenPositions(context, values) : tokenRows(context, values);
  values.rotaryRows.set(rowOf, rows);
  return rows;
}

/** int64 [B, S]: the last of a sequence's S tokens has position `seqlens_k`. */
function tokenPositions({ graph }: GraphContext, { seqlensK, inputShape, prefix, sizes }: SlotValues): Value {
  const one = int64Scalar(graph, 1);
  const numTokens = gatherRows(graph, `${prefix}input_ids.length`, inputShape, one);
  const offsets = range(graph, `${prefix}rotary.offsets`, numTokens, sizes.length);
  const last = cast(graph, `${prefix}rotary.last`, seqlensK, "int64");
  const first = subtract(graph, `${prefix}rotary.first`, last, subtract(graph, `${prefix}rotary.span`, numTokens, one));
  const column = reshapeTo(graph, `${prefix}rotary.column`, first, [batch, 1]);
  return add(graph, `${prefix}rotary.positions`, column, offsets);
}

/** int64 [B, S]: 0 to N - 1. */
function tokenRows({ graph }: GraphContext, { tokenIds, inputShape, prefix }: SlotValues): Value {
  invariant(prefix === "", "rows of tokens are those of the whole run");
  const zero = int64Scalar(graph, 0);
  const numTokens = gatherRows(graph, "tokens.count", shapeOf(graph, "tokens.shape", tokenIds), zero);
  const rows = range(graph, "rotary.own_rows.flat", numTokens, tokens);
  return reshape(graph, "rotary.own_rows", rows, inputShape, [batch, length]);
}
