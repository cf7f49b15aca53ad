/** Where an item's embeddings go in the expanded prompt: its tokens, and the rows of its embeddings. */

export interface PlaceholderRange {
  /** Index of the item's first token in the prompt. */
  readonly offset: number;
  /** Number of tokens of the item, including those without an embedding. */
  readonly length: number;
  /** Which of the `length` tokens receive an embedding; null means all. */
  readonly isEmbed: readonly boolean[] | null;
}

export function numEmbeddingsIn({ length, isEmbed }: PlaceholderRange): number {
  return isEmbed === null ? length : isEmbed.filter(Boolean).length;
}

/** An item with its place, such as an image of a prompt. */
interface Placed {
  readonly placeholder: PlaceholderRange;
}

export function numEmbeddingsOf({ placeholder }: Placed): number {
  return numEmbeddingsIn(placeholder);
}

/** First token after the image's placeholder. */
export function endTokenOf({ placeholder }: Placed): number {
  return placeholder.offset + placeholder.length;
}

/** The tokens from the first to the last that receives an embedding: `start` inclusive, `end` exclusive. */
export function embeddedSpan({ placeholder: { offset, length, isEmbed } }: Placed): {
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
  { placeholder }: Placed,
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
