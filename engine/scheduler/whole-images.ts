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

/** From the first to the last token, exclusive. */
export type TokenSpan = ReturnType<typeof embeddedSpan>;

/** @param images In the order of their placeholders. */
export function wholeSpans(
  images: readonly { readonly placeholder: PlaceholderRange }[],
  { keepsImagesWhole = false, joinsImages = false }: ImageRuns,
): readonly TokenSpan[] {
  if (!keepsImagesWhole || images.length === 0) return [];
  const spans = images.map(embeddedSpan);
  return joinsImages ? [{ start: spans[0]!.start, end: spans.at(-1)!.end }] : spans;
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
