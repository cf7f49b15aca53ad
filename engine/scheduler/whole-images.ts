/** The tokens of a prompt that a run must have together, because tokens of images see later ones. */
import { createHash } from "node:crypto";

import type { ImageFeature } from "../core/engine-request.ts";
import { embeddedSpan, endTokenOf, type PlaceholderRange } from "../multimodal/placeholder.ts";

export interface ImageRuns {
  /** See `DecoderShape`. Default false. */
  readonly keepsImagesWhole?: boolean | undefined;
  /** See `DecoderShape`. Default false. */
  readonly joinsImages?: boolean | undefined;
}

/** The tokens of an image, or of joined ones: from `start` up to, but not including, `end`. */
export type ImageSpan = ReturnType<typeof embeddedSpan>;

/** @param images In the order of their placeholders. */
export function wholeSpans(
  images: readonly { readonly placeholder: PlaceholderRange }[],
  { keepsImagesWhole = false, joinsImages = false }: ImageRuns,
): readonly ImageSpan[] {
  if (!keepsImagesWhole || images.length === 0) return [];
  const spans = images.map(embeddedSpan);
  return joinsImages ? [{ start: spans[0]!.start, end: spans.at(-1)!.end }] : spans;
}

/**
 * The fewest tokens that a step must be able to have, so that it can compute an image that is kept whole: every other
 * sequence may take a token of the step.
 */
export function fewestStepTokens(numImageTokens: number, maxNumSequences: number): number {
  return numImageTokens + maxNumSequences - 1;
}

/** The inverse: the most tokens that an image may have in steps of `maxNumBatchedTokens`. */
export function mostImageTokens(maxNumBatchedTokens: number, maxNumSequences: number): number {
  return maxNumBatchedTokens - maxNumSequences + 1;
}

/**
 * Names all images of a prompt with the tokens between them. Where images are joined, the keys and values of each depend
 * on all of it, and so none of them is reused in a prompt that has another image.
 */
export function nameOfAllImages(tokenIds: readonly number[], images: readonly ImageFeature[]): string {
  const start = images[0]!.placeholder.offset;
  const hash = createHash("sha256").update(Int32Array.from(tokenIds.slice(start, endTokenOf(images.at(-1)!))));
  const placed = images.map(({ mmHash, placeholder: { offset, length } }) => [mmHash, offset - start, length]);
  return hash.update(JSON.stringify(placed)).digest("base64url");
}
