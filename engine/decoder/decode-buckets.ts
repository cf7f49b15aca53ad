/**
 * Shapes of steps in which every sequence decodes. Rounding up the number of sequences and the width of the block table
 * leaves few shapes, each of which is bound once and, on CUDA, captured as a graph.
 */
import type { PackedShape } from "./packed-inputs.ts";
import type { AttentionBounds } from "./packed-run.ts";

const sequenceBuckets = [1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256] as const;

const MIN_COLUMNS = 8;

/** The number of rows in which `numSequences` are computed. */
export function paddedSequences(numSequences: number): number {
  return sequenceBuckets.find((bucket) => bucket >= numSequences) ?? numSequences;
}

/** The padded numbers of sequences up to `maxNumSequences`, ascending. */
export function sequenceCountsUpTo(maxNumSequences: number): readonly number[] {
  const buckets = sequenceBuckets.filter((bucket) => bucket < maxNumSequences);
  return [...buckets, maxNumSequences];
}

/** The columns of a block table for sequences of at most `numBlocks` blocks. */
export function paddedColumns(numBlocks: number): number {
  return Math.max(MIN_COLUMNS, 2 ** Math.ceil(Math.log2(numBlocks)));
}

/** The shape in which a step of this shape is computed, if each of its sequences decodes. */
export function decodeShape({ numSequences, numColumns }: PackedShape): PackedShape {
  const padded = paddedSequences(numSequences);
  return { numTokens: padded, numSequences: padded, numColumns: paddedColumns(numColumns), numRows: padded };
}

/**
 * Bounds of every step that is computed in a shape of `decodeShape`, because every replay has to keep the bounds of the
 * capture. The longest sequence needs more than half of the columns, except in the narrowest table.
 */
export function decodeBounds({ numColumns }: Pick<PackedShape, "numColumns">, blockSize: number): AttentionBounds {
  const minLongestLength = numColumns === MIN_COLUMNS ? 1 : (numColumns / 2) * blockSize + 1;
  return { maxNewTokens: 1, maxLength: numColumns * blockSize, minLongestLength };
}
