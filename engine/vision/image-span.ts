/** Finds the images that a span of prompt tokens needs, and the rows of their embeddings. */
import type { ImageFeature } from "../core/engine-request.ts";
import { numEmbeddingsIn } from "../multimodal/placeholder.ts";

export function numEmbeddingsOf({ placeholder }: ImageFeature): number {
  return numEmbeddingsIn(placeholder);
}

/** First token after the image's placeholder. */
export function endTokenOf({ placeholder }: ImageFeature): number {
  return placeholder.offset + placeholder.length;
}

/** The tokens from the first to the last that receives an embedding: `start` inclusive, `end` exclusive. */
export function embeddedSpan({ placeholder: { offset, length, isEmbed } }: ImageFeature): {
  readonly start: number;
  readonly end: number;
} {
  if (isEmbed === null) return { start: offset, end: offset + length };
  return { start: offset + isEmbed.indexOf(true), end: offset + isEmbed.lastIndexOf(true) + 1 };
}

/**
 * Calls `visit` for each token from `firstToken` up to, but not including, `endToken` that receives an embedding of the
 * image. Passes the row of the image's embeddings.
 */
export function visitEmbeddings(
  { placeholder }: ImageFeature,
  firstToken: number,
  endToken: number,
  visit: (token: number, embeddingRow: number) => void,
): void {
  const { offset, length, isEmbed } = placeholder;
  let embeddingRow = 0;
  for (let index = 0; index < length && offset + index < endToken; index++) {
    if (isEmbed !== null && !isEmbed[index]) continue;
    if (offset + index >= firstToken) visit(offset + index, embeddingRow);
    embeddingRow++;
  }
}
