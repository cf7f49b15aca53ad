/**
 * The CPU reference of decoding over a paged KV cache, in operators of the ONNX standard. Each layer scatters new keys
 * and values into their blocks, gathers those of all sequences, and runs one attention whose mask keeps sequences apart.
 * The indices are computed once for all layers. The cost of a step grows with the square of the number of sequences:
 * this form is for tests, and for machines without a GPU.
 */
import type { GraphBuilder } from "../../graph/graph-builder.ts";
import { maskedAttention } from "../../graph/paged-attention-ops.ts";
import {
  and,
  equal,
  gatherAt,
  less,
  lessOrEqual,
  maximum,
  minimum,
  nonZero,
  or,
  scatterAt,
  sliceRows,
  where,
} from "../../graph/selection-ops.ts";
import { int64Scalar, reshapeTo } from "../../graph/shape-ops.ts";
import {
  add,
  cast,
  concat,
  divide,
  gatherRows,
  modulo,
  multiply,
  range,
  reshape,
  shapeOf,
  split,
  subtract,
} from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { presentName } from "../decoder-shape.ts";
import type { GraphContext } from "../graph-context.ts";
import { separate } from "../linear.ts";
import type { CachedAttention, DecoderInputs } from "./decoder-inputs.ts";
import { fullGroups } from "./full-groups.ts";
import { headWidths } from "./heads.ts";
import {
  asColumn,
  createRowRotation,
  pagedInputs,
  pagedValues,
  pastBlocks,
  sequenceBounds,
  tokenPlaces,
  type PagedValues,
  type RowRotation,
  type TokenPlaces,
} from "./paged-inputs.ts";
import { createPagedRecurrence } from "./paged-recurrence.ts";
import { cachedTokens, imageTokens, tokens } from "./sizes.ts";
import { numLaterImageTokens, withOneMore } from "./whole-images.ts";

interface PagedIndex {
  /** Places of the run's N tokens. */
  readonly own: TokenPlaces;
  /** Places of the L tokens in the cache, sequence by sequence. */
  readonly cached: TokenPlaces;
  /** int64 [N, 2]: block and place in it. */
  readonly ownSlots: Value;
  /** int64 [L, 2]. */
  readonly cachedSlots: Value;
  /** bool [N, L] by name: which of the L tokens a token sees. */
  readonly masks: Map<string, Value>;
  /** int64 [N]: the last position that a token sees, if that can be later than its own; null until a layer needs it. */
  until: Value | null;
  /** bool [N]: the image tokens, and bool [L]: their keys in the cache; null until a layer needs them. */
  images: { readonly queries: Value; readonly keys: Value } | null;
}

export function createReferencePagedInputs(context: GraphContext, blockSize: number): DecoderInputs {
  const values = pagedValues(context);
  const bounds = sequenceBounds(context, values);
  const index = createIndex(context, values, { bounds, blockSize });
  const rotate = createRowRotation(context, () => index.own.positions);
  return pagedInputs(context, values, {
    positions: () => index.own.positions,
    attend(attention) {
      const { isImage } = values;
      if (isImage !== null && attention.seenImages === "own") index.until ??= endOfImages(context, index.own, isImage);
      if (isImage !== null && attention.seenImages === "all") {
        index.images ??= { queries: isImage, keys: imageKeys(context, index.cached, values, { bounds, isImage }) };
      }
      return attend(context, attention, { index, rotate, blockSize });
    },
    ...createPagedRecurrence(context, { tokenIds: values.tokenIds, bounds, sequences: index.own.sequences }),
  });
}

/** int64 [N]: each token's own position, or that of the last token of its image. */
function endOfImages(context: GraphContext, { sequences, positions }: TokenPlaces, isImage: Value): Value {
  const { graph } = context;
  const anySize = graph.constant("any_size", "int64", [1], [-1]);
  const coordinates = nonZero(graph, "image_tokens.coordinates", isImage, imageTokens);
  const rows = reshape(graph, "image_tokens.rows", coordinates, anySize, [imageTokens]);
  const anyRows = withOneMore(context, "image_tokens.any_rows", rows, 0);
  const own = gatherRows(graph, "image_tokens.sequence", sequences, anyRows);
  const numLater = numLaterImageTokens(context, rows, own);
  const none = subtract(graph, "tokens.none_later", positions, positions);
  const later = scatterAt(graph, "tokens.num_later", {
    data: none,
    indices: reshapeTo(graph, "image_tokens.indices", rows, [imageTokens, 1]),
    updates: sliceRows(graph, "image_tokens.num_later.own", numLater, { start: 0, end: -1, size: imageTokens }),
  });
  return add(graph, "tokens.until", positions, later);
}

/** bool [L]: which tokens in the cache are image tokens of this run. */
function imageKeys(
  context: GraphContext,
  { sequences, positions }: TokenPlaces,
  { pastLengths }: PagedValues,
  { bounds, isImage }: { readonly bounds: ReturnType<typeof sequenceBounds>; readonly isImage: Value },
): Value {
  const { graph } = context;
  const pasts = cast(graph, "image_keys.pasts", pastLengths, "int64");
  const past = gatherRows(graph, "image_keys.past", pasts, sequences);
  const start = gatherRows(graph, "image_keys.start", bounds.starts, sequences);
  const within = subtract(graph, "image_keys.within", positions, past);
  const none = int64Scalar(graph, 0);
  const row = add(graph, "image_keys.row", start, maximum(graph, "image_keys.new", within, none));
  const isMarked = gatherRows(graph, "image_keys.marked", cast(graph, "image_keys.all", isImage, "int64"), anyRow(row));
  const isNew = lessOrEqual(graph, "image_keys.is_new", none, within);
  return and(graph, "image_keys.is_image", isNew, cast(graph, "image_keys.is_marked", isMarked, "bool"));

  /** A sequence without tokens in this run may begin behind the last row. */
  function anyRow(wanted: Value): Value {
    const count = gatherRows(graph, "image_keys.num_rows", shapeOf(graph, "image_keys.rows_shape", isImage), none);
    return minimum(
      graph,
      "image_keys.any_row",
      wanted,
      subtract(graph, "image_keys.last_row", count, int64Scalar(graph, 1)),
    );
  }
}

function createIndex(
  context: GraphContext,
  values: PagedValues,
  {
    bounds: { starts, ends },
    blockSize,
  }: { readonly bounds: ReturnType<typeof sequenceBounds>; readonly blockSize: number },
): PagedIndex {
  const { graph } = context;
  const { pastLengths, blockTable } = values;
  const own = tokenPlaces(context, values, { starts, ends });

  // The table may have columns beyond a sequence's end.
  const numColumns = gatherRows(
    graph,
    "block_table.columns",
    shapeOf(graph, "block_table.shape", blockTable),
    int64Scalar(graph, 1),
  );
  const numPositions = multiply(graph, "block_table.positions", numColumns, int64Scalar(graph, blockSize));
  const position = range(graph, "cache.position", numPositions, "C * blockSize");
  const pasts = cast(graph, "past_lengths.int64", pastLengths, "int64");
  const lengths = add(graph, "sequences.length", pasts, subtract(graph, "sequences.new", ends, starts));
  const isCached = less(graph, "cache.is_filled", position, asColumn(context, "sequences.length", lengths));
  const coordinates = nonZero(graph, "cache.coordinates", isCached, cachedTokens);
  const anySize = graph.constant("any_size", "int64", [1], [-1]);
  const [sequences, positions] = split(graph, "cache.axes", coordinates, { axis: 0, sizes: [1, 1] }).map((row, axis) =>
    reshape(graph, `cache.axis.${axis}`, row, anySize, [cachedTokens]),
  );
  const cached: TokenPlaces = { sequences: sequences!, positions: positions! };

  const table = mappedTable(context, blockTable);
  return {
    own,
    cached,
    ownSlots: slots(context, "tokens", { places: own, table, blockSize }),
    cachedSlots: slots(context, "cache", { places: cached, table, blockSize }),
    masks: new Map(),
    until: null,
    images: null,
  };
}

/** More blocks than any pool has, so that a run fails if it needs an unmapped block. */
const NO_BLOCK = 2 ** 31 - 1;

/** int64 [B, C]. In ONNX -1 would be the pool's last block, because negative indices count from the back. */
function mappedTable({ graph }: GraphContext, blockTable: Value): Value {
  const wide = cast(graph, "block_table.wide", blockTable, "int64");
  const zero = int64Scalar(graph, 0);
  return where(graph, "block_table.mapped", {
    condition: less(graph, "block_table.is_unmapped", wide, zero),
    chosen: graph.constant("block_table.no_block", "int64", [], [NO_BLOCK]),
    other: wide,
  });
}

/** int64 [n, 2]: each token's block and its place in it. */
function slots(
  context: GraphContext,
  name: string,
  { places, table, blockSize }: { readonly places: TokenPlaces; readonly table: Value; readonly blockSize: number },
): Value {
  const { graph } = context;
  const size = int64Scalar(graph, blockSize);
  const pair = (part: string, left: Value, right: Value): Value =>
    concat(graph, part, [asColumn(context, `${part}.0`, left), asColumn(context, `${part}.1`, right)], 1);
  const column = divide(graph, `${name}.block_column`, places.positions, size);
  const block = gatherAt(graph, `${name}.block`, table, pair(`${name}.entry`, places.sequences, column));
  return pair(`${name}.slot`, block, modulo(graph, `${name}.place`, places.positions, size));
}

function mask(
  context: GraphContext,
  { own, cached, masks, until: endOfImage, images: allImages }: PagedIndex,
  { localWindowSize: window, seenImages = "before" }: CachedAttention,
): Value {
  const until = seenImages === "own" ? endOfImage : null;
  const images = seenImages === "all" ? allImages : null;
  const name = `mask.${window ?? "all"}.${until === null && images === null ? "before" : seenImages}`;
  const known = masks.get(name);
  if (known !== undefined) return known;
  const { graph } = context;
  const sequence = asColumn(context, `${name}.sequence`, own.sequences);
  const position = asColumn(context, `${name}.position`, own.positions);
  const isSame = equal(graph, `${name}.is_same`, sequence, cached.sequences);
  const last = until === null ? position : asColumn(context, `${name}.until`, until);
  const isEarlier = lessOrEqual(graph, `${name}.is_before`, cached.positions, last);
  const isBefore =
    images === null
      ? isEarlier
      : or(
          graph,
          `${name}.is_seen`,
          isEarlier,
          and(graph, `${name}.are_images`, asColumn(context, `${name}.is_image`, images.queries), images.keys),
        );
  let made = and(graph, `${name}.is_own`, isSame, isBefore);
  if (window !== null) {
    const size = int64Scalar(graph, window);
    const first = subtract(graph, `${name}.behind`, position, size);
    made = and(graph, `${name}.is_near_own`, made, less(graph, `${name}.is_near`, first, cached.positions));
  }
  masks.set(name, made);
  return made;
}

function attend(
  context: GraphContext,
  attention: CachedAttention,
  {
    index,
    rotate,
    blockSize,
  }: { readonly index: PagedIndex; readonly rotate: RowRotation; readonly blockSize: number },
): Value {
  const { graph } = context;
  const { name, layer, projected, rotary, numHeads, numKvHeads, headDim, scale } = attention;
  const isFp8 = context.kvPrecision.kind === "fp8";
  // As on CUDA, so that tests have its numbers.
  const groups = isFp8 ? fullGroups(context, attention) : null;
  const [query, key, value] = separate(graph, `${name}.qkv`, projected, headWidths(attention));

  const width = numKvHeads * headDim;
  const oneBatch = (features: number): Value =>
    graph.constant(`one_by_any_by.${features}`, "int64", [3], [1, -1, features]);
  const throughCache = (part: "key" | "value", flat: Value): Value => {
    const stored = isFp8 ? throughFp8(graph, `${name}.${part}`, flat) : flat;
    const updates = reshapeTo(graph, `${name}.${part}.heads`, stored, [tokens, numKvHeads, headDim]);
    const data = pastBlocks(context, attention, { part, blockSize });
    const present = scatterAt(graph, presentName(layer, part, attention.reader), {
      data,
      indices: index.ownSlots,
      updates,
    });
    graph.output(present);
    const gathered = gatherAt(graph, `${name}.${part}.cached`, present, index.cachedSlots);
    return reshape(graph, `${name}.${part}.cached.flat`, gathered, oneBatch(width), [1, cachedTokens, width]);
  };
  const rotated = (part: "query" | "key", flat: Value, heads: number): Value =>
    rotary === null ? flat : rotate(`${name}.${part}`, flat, rotary, heads);
  const rotatedQuery = rotated("query", query, numHeads);
  const numAttended = groups?.numHeads ?? numHeads;
  const queryWidth = numAttended * headDim;
  const attended = maskedAttention(graph, name, {
    query: reshape(
      graph,
      `${name}.query.flat`,
      groups === null ? rotatedQuery : groups.fill(rotatedQuery),
      oneBatch(queryWidth),
      [1, tokens, queryWidth],
    ),
    key: throughCache("key", rotated("key", key, numKvHeads)),
    value: throughCache("value", value),
    mask: mask(context, index, attention),
    numHeads: numAttended,
    numKvHeads,
    headDim,
    scale,
  });
  const flat = reshapeTo(graph, `${name}.flat`, attended, [tokens, queryWidth]);
  return groups === null ? flat : groups.drop(flat);
}

/** Each number as the nearest one of E4M3, in its own type. */
function throughFp8(graph: GraphBuilder, name: string, values: Value): Value {
  return cast(graph, `${name}.rounded`, cast(graph, `${name}.fp8`, values, "float8e4m3"), values.elementType);
}
