/**
 * Attention of image tokens to their whole image, or to all images of their prompt, over KV slots. The causal attention of
 * the run has stored keys and values by then; the rows of image tokens are computed again over them, up to the ends of
 * their images, or with the keys of all images. There is one more row, because attention needs one; a run without images
 * computes nothing else here, and that row sees the first key only.
 */
import { invariant } from "../../contract/errors.ts";
import { rotaryEmbedding } from "../../graph/contrib-ops.ts";
import { maskedAttention } from "../../graph/paged-attention-ops.ts";
import { and, less, lessOrEqual, maximum, or, scatterAt, sliceBetween, sliceRows } from "../../graph/selection-ops.ts";
import { int64Scalar, int64Vector, reshapeTo } from "../../graph/shape-ops.ts";
import {
  add,
  cast,
  concat,
  gatherRows,
  multiply,
  range,
  reshape,
  scatterRows,
  shapeOf,
  subtract,
  transpose,
} from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import type { CachedAttention } from "./decoder-inputs.ts";
import { imageKeys, imageTokens, oneMoreImageToken } from "./sizes.ts";
import { numLaterImageTokens, withOneMore } from "./whole-images.ts";

/** More than any axis has. */
const BEYOND_ANY = 2 ** 31;

/** Computed once for all layers. */
export interface ImageRows {
  /** int64 [M + 1]: rows of the image tokens among the N; then 0. */
  readonly rows: Value;
  /** int64 [M, 1]. */
  readonly indices: Value;
  /** int64 [1, M + 1]: positions in their sequence; then 0. */
  readonly positions: Value;
  /** int64 [4]: the corner behind the keys of the sequence. */
  readonly keyEnds: Value;
  /** bool [M + 1, T]; computed once for each window. */
  mask(this: void, window: number | null): Value;
}

/** @param inputs The inputs of the graph; a run with images has one sequence, and `inputShape` is int64 [2]: B, S. */
export function createImageRows(
  context: GraphContext,
  inputs: { readonly imagePositions: Value; readonly seqlensK: Value; readonly inputShape: Value },
  seenImages: "own" | "all",
): ImageRows {
  const { graph } = context;
  const { imagePositions, seqlensK, inputShape } = inputs;
  const scalar = (value: number): Value => int64Scalar(graph, value);
  const rows = reshapeTo(graph, "image_rows", imagePositions, [imageTokens]);
  const last = cast(graph, "image_rows.last", gatherRows(graph, "image_rows.last.int32", seqlensK, scalar(0)), "int64");
  const numTokens = gatherRows(graph, "image_rows.length", inputShape, scalar(1));
  const total = add(graph, "image_rows.total", last, scalar(1));
  const first = subtract(graph, "image_rows.first", total, numTokens);
  const own = add(graph, "image_rows.own_position", rows, first);
  const positions = withOneMore(context, "image_rows.position", own, 0);
  const until =
    seenImages === "all"
      ? positions
      : add(graph, "image_rows.until", positions, numLaterImageTokens(context, rows, null));

  const count = gatherRows(graph, "image_rows.count", shapeOf(graph, "image_rows.shape", rows), scalar(0));
  const hasImages = cast(graph, "image_rows.has_any", less(graph, "image_rows.is_any", scalar(0), count), "int64");
  const numKeys = maximum(
    graph,
    "image_rows.num_keys",
    multiply(graph, "image_rows.total_keys", total, hasImages),
    scalar(1),
  );
  const key = range(graph, "image_rows.key", numKeys, imageKeys);
  const one = int64Vector(graph, 1);
  const beyond = int64Vector(graph, BEYOND_ANY);
  const keyEnd = reshape(graph, "image_rows.num_keys.vector", numKeys, one, [1]);
  const column = (name: string, values: Value): Value =>
    reshapeTo(graph, `${name}.column`, values, [oneMoreImageToken, 1]);
  const isImageKey = seenImages === "all" ? imageKeyMask(context, key, own) : null;
  const masks = new Map<number | null, Value>();
  const createMask = (window: number | null): Value => {
    const name = `image_rows.mask.${window ?? "all"}`;
    const isEarlier = lessOrEqual(graph, `${name}.is_before`, key, column(name, until));
    const isBefore = isImageKey === null ? isEarlier : or(graph, `${name}.is_seen`, isEarlier, isImageKey);
    if (window === null) return isBefore;
    const size = int64Scalar(graph, window);
    const behind = subtract(graph, `${name}.behind`, positions, size);
    return and(
      graph,
      `${name}.is_near`,
      isBefore,
      less(graph, `${name}.is_after`, column(`${name}.from`, behind), key),
    );
  };
  return {
    rows: withOneMore(context, "image_rows.any", rows, 0),
    indices: imagePositions,
    positions: reshape(
      graph,
      "image_rows.position.row",
      positions,
      graph.constant("row_shape", "int64", [2], [1, -1]),
      [1, oneMoreImageToken],
    ),
    keyEnds: concat(graph, "image_rows.key_ends", [one, beyond, keyEnd, beyond], 0),
    mask(window) {
      const made = masks.get(window) ?? createMask(window);
      masks.set(window, made);
      return made;
    },
  };
}

/**
 * bool [T]: the keys of this run's images.
 *
 * @param positions int64 [M], those of its image tokens.
 */
function imageKeyMask({ graph }: GraphContext, key: Value, positions: Value): Value {
  const none = subtract(graph, "image_keys.none", key, key);
  const one = int64Scalar(graph, 1);
  const marked = scatterAt(graph, "image_keys.marked", {
    data: none,
    indices: reshapeTo(graph, "image_keys.indices", positions, [imageTokens, 1]),
    updates: add(graph, "image_keys.ones", subtract(graph, "image_keys.zeros", positions, positions), one),
  });
  return cast(graph, "image_keys.is_image", marked, "bool");
}

/**
 * Replaces the rows of image tokens in `causal`, [N, numHeads * headDim].
 *
 * @param query [N, numHeads * headDim], not rotated.
 * @param present Keys and values after the run, [B, numKvHeads, maxLen, headDim].
 */
export function attendToWholeImages(
  context: GraphContext,
  { name, rotary, numHeads, numKvHeads, headDim, localWindowSize, scale }: CachedAttention,
  images: ImageRows,
  {
    causal,
    query,
    present,
  }: { readonly causal: Value; readonly query: Value; readonly present: readonly [Value, Value] },
): Value {
  const { graph } = context;
  invariant(rotary?.rowOf === "position", "image tokens that see each other have one position");
  const queryWidth = numHeads * headDim;
  const width = numKvHeads * headDim;
  const grouped = (features: number): Value =>
    graph.constant(`one_by_any_by.${features}`, "int64", [3], [1, -1, features]);
  const own = gatherRows(graph, `${name}.images.query`, query, images.rows);
  const rotated = rotaryEmbedding(graph, `${name}.images.query.rotated`, {
    input: reshape(graph, `${name}.images.query.grouped`, own, grouped(queryWidth), [1, oneMoreImageToken, queryWidth]),
    positions: images.positions,
    numHeads,
    ...rotary.tables,
  });
  const starts = graph.constant("int64.zeros.4", "int64", [4], [0, 0, 0, 0]);
  const keysOf = (part: string, cache: Value): Value => {
    const label = `${name}.images.${part}`;
    const shape = [1, numKvHeads, imageKeys, headDim];
    const slot = sliceBetween(graph, label, cache, { starts, ends: images.keyEnds, shape });
    const byToken = transpose(graph, `${label}.by_token`, slot, [0, 2, 1, 3]);
    return reshape(graph, `${label}.grouped`, byToken, grouped(width), [1, imageKeys, width]);
  };
  const attended = maskedAttention(graph, `${name}.images`, {
    query: rotated,
    key: keysOf("key", present[0]),
    value: keysOf("value", present[1]),
    mask: images.mask(localWindowSize),
    numHeads,
    numKvHeads,
    headDim,
    scale,
  });
  const flat = reshapeTo(graph, `${name}.images.flat`, attended, [oneMoreImageToken, queryWidth]);
  const updates = sliceRows(graph, `${name}.images.rows`, flat, { start: 0, end: -1, size: imageTokens });
  return scatterRows(graph, `${name}.with_images`, causal, images.indices, updates);
}
