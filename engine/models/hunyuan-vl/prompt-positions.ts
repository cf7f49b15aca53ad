/** Positions of HunyuanOCR's prompts: text on a line, the embeddings of a picture at their column, row and picture. */
import type { PromptPositions } from "../../multimodal/prompt-positions.ts";
import type { SquareGrid } from "../patches/square-grid.ts";

/** An embedding for each square, one at the end of each row, and one before and one after all of them. */
export function numEmbeddings({ rows, columns }: SquareGrid): number {
  return rows * (columns + 1) + 2;
}

/**
 * Equals transformers' `get_rope_index` without its first axis, which is the place in the prompt: columns, rows and
 * numbers of images. Tokens of text, and the first and last embedding of a picture, have their place on all axes.
 *
 * @param images In the order of the prompt; each has `numEmbeddings` tokens from `offset` on.
 */
export function promptPositions(
  numTokens: number,
  images: readonly (SquareGrid & { readonly offset: number })[],
): PromptPositions {
  const axes = Int32Array.from({ length: 3 * numTokens }, (_, index) => index % numTokens);
  for (const [image, { offset, rows, columns }] of images.entries()) {
    for (let index = 0; index < rows * (columns + 1); index++) {
      const token = offset + 1 + index;
      axes[token] = index % (columns + 1);
      axes[numTokens + token] = Math.floor(index / (columns + 1));
      axes[2 * numTokens + token] = image;
    }
  }
  return { axes, next: numTokens };
}
