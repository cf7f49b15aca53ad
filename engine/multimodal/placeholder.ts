/** The position of one item's embeddings in the expanded prompt. */

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
