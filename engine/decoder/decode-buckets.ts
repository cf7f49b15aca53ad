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
 * CUDA's Flash attention divides longer sequences among blocks of threads where it is told that the longest one is longer
 * than this (`kFlashSplitKvMinSequenceLength`). More than a few sequences fill the card undivided.
 */
const UNDIVIDED_LENGTH = 512;
const MAX_DIVIDED_SEQUENCES = 8;

/**
 * Bounds of every step that is computed in a shape of `decodeShape` with these bounds, because every replay has to keep
 * those of the capture. The longest sequence needs more than half of the columns, except in the narrowest table. In that
 * one, a few sequences have different bounds depending on whether the longest one is to be divided.
 *
 * @param longestLength Tokens of the step's longest sequence.
 */
export function decodeBounds(
  { numSequences, numColumns }: Pick<PackedShape, "numSequences" | "numColumns">,
  blockSize: number,
  longestLength: number,
): AttentionBounds {
  const isDivided = numSequences <= MAX_DIVIDED_SEQUENCES && longestLength > UNDIVIDED_LENGTH;
  const minOfNarrowest = isDivided ? UNDIVIDED_LENGTH + 1 : 1;
  const minLongestLength = numColumns === MIN_COLUMNS ? minOfNarrowest : (numColumns / 2) * blockSize + 1;
  return { maxNewTokens: 1, maxLength: numColumns * blockSize, minLongestLength };
}
