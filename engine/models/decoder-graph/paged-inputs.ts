/** Parts shared by both forms of the paged decoder graph: inputs, image embeddings, and the positions of tokens. */
import { rotaryEmbedding } from "../../graph/contrib-ops.ts";
import { rotateByRows } from "../../graph/paged-attention-ops.ts";
import { cumulativeSum, greaterOrEqual, maximum, sliceRows, sumLast, where } from "../../graph/selection-ops.ts";
import { int64Scalar, reshapeTo } from "../../graph/shape-ops.ts";
import { add, cast, gatherRows, reshape, split, subtract } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { kvElementTypeOf, logitRows, type GraphContext } from "../graph-context.ts";
import { createAdapterInputs } from "./adapter-inputs.ts";
import type { CachedAttention, DecoderInputs, Rotary } from "./decoder-inputs.ts";
import { batch, blockColumns, numBlocks, poolRows, tokens } from "./sizes.ts";

export interface PagedValues {
  /** int64 [N]. */
  readonly tokenIds: Value;
  /** int32 [B + 1]. */
  readonly cumulativeLengths: Value;
  /** int32 [B]. */
  readonly pastLengths: Value;
  /** int32 [B, C]. */
  readonly blockTable: Value;
  /** bool [N]: which tokens belong to images; null in a graph without images. */
  isImage: Value | null;
}

/** The place of each token of the run. */
export interface TokenPlaces {
  /** int64 [N]: its sequence among the B. */
  readonly sequences: Value;
  /** int64 [N]: its position in the sequence. */
  readonly positions: Value;
}

export function pagedValues({ graph }: GraphContext): PagedValues {
  return {
    tokenIds: graph.input("input_ids", "int64", [tokens]),
    cumulativeLengths: graph.input("cumulative_lengths", "int32", [`${batch} + 1`]),
    pastLengths: graph.input("past_lengths", "int32", [batch]),
    blockTable: graph.input("block_table", "int32", [batch, blockColumns]),
    isImage: null,
  };
}

export function pagedInputs(
  context: GraphContext,
  values: PagedValues,
  mixing: Pick<DecoderInputs, "positions" | "attend" | "convolve" | "recur">,
): DecoderInputs {
  const { graph } = context;
  createAdapterInputs(context);
  const inputs: DecoderInputs = {
    tokenIds: values.tokenIds,
    logitRows: graph.input("logit_rows", "int64", [logitRows]),
    withImages(embedded, numLevels) {
      const width = Number(embedded.shape[1]);
      const pool = graph.input("image_pool", "float32", [poolRows, (1 + numLevels) * width]);
      const rows = graph.input("image_rows", "int64", [tokens]);
      const none = int64Scalar(graph, 0);
      const images = gatherRows(graph, "image_pool.rows", pool, maximum(graph, "image_rows.any", rows, none));
      const isImage = greaterOrEqual(graph, "image_rows.is_image", rows, none);
      values.isImage = isImage;
      const condition = asColumn(context, "image_rows.is_image", isImage);
      const features = cast(graph, "image_pool.cast", images, embedded.elementType);
      const chosenFor = (name: string, chosen: Value, other: Value): Value =>
        where(graph, name, { condition, chosen, other });
      if (numLevels === 0) return { embedded: chosenFor("embedded.with_images", features, embedded), levels: [] };
      const sizes = Array.from({ length: 1 + numLevels }, () => width);
      const [first, ...others] = split(graph, "image_pool.levels", features, { axis: 1, sizes });
      const zero = graph.constant("image_levels.zero", context.precision.activations, [1, 1], [0]);
      return {
        embedded: chosenFor("embedded.with_images", first!, embedded),
        levels: others.map((level, index) => chosenFor(`image_levels.${index}`, level, zero)),
      };
    },
    tail: () => ({ inputs, keep: (_, rows) => rows }),
    ...mixing,
  };
  return inputs;
}

/** The layer's half of the cache, [numBlocks, blockSize, numKvHeads, headDim], as an input of the graph. */
export function pastBlocks(
  context: GraphContext,
  { layer, numKvHeads, headDim }: CachedAttention,
  { part, blockSize }: { readonly part: "key" | "value"; readonly blockSize: number },
): Value {
  const shape = [numBlocks, blockSize, numKvHeads, headDim];
  return context.graph.input(`past.${layer}.${part}`, kvElementTypeOf(context), shape);
}

/** int64 [B] each: a sequence's first token among the N, and the first token after its last. */
export function sequenceBounds(
  { graph }: GraphContext,
  { cumulativeLengths }: PagedValues,
): { readonly starts: Value; readonly ends: Value } {
  const wide = cast(graph, "cumulative_lengths.wide", cumulativeLengths, "int64");
  const beyondAny = 2 ** 31;
  return {
    starts: sliceRows(graph, "sequences.starts", wide, { start: 0, end: -1, size: batch }),
    ends: sliceRows(graph, "sequences.ends", wide, { start: 1, end: beyondAny, size: batch }),
  };
}

/** The index of a token's sequence is the number of sequences that end at the token or before it, empty ones included. */
export function tokenPlaces(
  context: GraphContext,
  { tokenIds, pastLengths }: PagedValues,
  { starts, ends }: ReturnType<typeof sequenceBounds>,
): TokenPlaces {
  const { graph } = context;
  // Counted without the number of tokens: a captured CUDA graph has no values in the host's memory.
  const one = int64Scalar(graph, 1);
  const ones = add(graph, "tokens.ones", subtract(graph, "tokens.zeros", tokenIds, tokenIds), one);
  const index = subtract(graph, "tokens.index", cumulativeSum(graph, "tokens.count", ones), one);
  const hasEnded = greaterOrEqual(graph, "sequences.have_ended", asColumn(context, "tokens.index", index), ends);
  const sequences = sumLast(graph, "tokens.sequence", cast(graph, "sequences.have_ended.count", hasEnded, "int64"));
  const pasts = cast(graph, "past_lengths.wide", pastLengths, "int64");
  const shifts = gatherRows(graph, "tokens.shift", subtract(graph, "sequences.shift", pasts, starts), sequences);
  return { sequences, positions: add(graph, "tokens.position", index, shifts) };
}

/** Rotates [N, heads * headDim] outside of attention. */
export type RowRotation = (name: string, flat: Value, rotary: Rotary, numHeads: number) => Value;

/**
 * The operators need a batch of sequences. Tokens that take rows of the tables by position are one sequence each, because
 * a sequence may not have more tokens than a table has rows; others are one sequence, as their rows are. Positions and
 * rows are computed once for all layers.
 *
 * @param positions int64 [N]; called if the tables have rows by position.
 */
export function createRowRotation({ graph }: GraphContext, positions: () => Value): RowRotation {
  const known = new Map<string, Value>();
  const grouped = (name: string, flat: Value, batch: "one" | "each"): Value => {
    const made = known.get(name);
    if (made !== undefined) return made;
    const [numTokens, ...rest] = flat.shape;
    const shape = batch === "one" ? [1, numTokens!, ...rest] : [numTokens!, 1, ...rest];
    const sizes = [...(batch === "one" ? [1, -1] : [-1, 1]), ...rest.map(Number)];
    const target = graph.constant(`sequences.${batch}.${sizes.join(".")}`, "int64", [sizes.length], sizes);
    const value = reshape(graph, name, flat, target, shape);
    known.set(name, value);
    return value;
  };
  return (name, flat, rotary, numHeads) => {
    const { cosCache, sinCache } = rotary.tables;
    const rotated =
      rotary.rowOf === "token"
        ? rotateByRows(graph, `${name}.rotated`, {
            input: grouped(`${name}.grouped`, flat, "one"),
            numHeads,
            cosCache: grouped(`${cosCache.name}.grouped`, cosCache, "one"),
            sinCache: grouped(`${sinCache.name}.grouped`, sinCache, "one"),
          })
        : rotaryEmbedding(graph, `${name}.rotated`, {
            input: grouped(`${name}.grouped`, flat, "each"),
            numHeads,
            positions: grouped("tokens.position.grouped", positions(), "each"),
            cosCache,
            sinCache,
          });
    const [, features] = flat.shape;
    const flatShape = graph.constant(`any_by.${features}`, "int64", [2], [-1, Number(features)]);
    return reshape(graph, `${name}.rotated.flat`, rotated, flatShape, flat.shape);
  };
}

/** [n] as [n, 1]. */
export function asColumn({ graph }: GraphContext, name: string, values: Value): Value {
  return reshapeTo(graph, `${name}.column`, values, [values.shape[0]!, 1]);
}
