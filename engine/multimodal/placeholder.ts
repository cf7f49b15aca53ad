/** Where the embeddings of one item sit in the expanded prompt. */

export interface PlaceholderRange {
  /** Index of the item's first token in the prompt. */
  readonly offset: number;
  /** Tokens the item takes, those without an embedding included. */
  readonly length: number;
  /** Which of the `length` tokens receive an embedding; null is all. */
  readonly isEmbed: readonly boolean[] | null;
}

export function numEmbeddingsIn({ length, isEmbed }: PlaceholderRange): number {
  return isEmbed === null ? length : isEmbed.filter(Boolean).length;
}
