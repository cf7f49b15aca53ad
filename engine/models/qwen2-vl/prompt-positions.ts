/** Positions of Qwen2-VL's tokens: text on a line, the embeddings of a picture on a plane at one point of it. */
import type { PromptPositions } from "../../multimodal/prompt-positions.ts";
import type { SquareGrid } from "../patches/square-grid.ts";

/**
 * Equals transformers' `get_rope_index`: a picture's embeddings share one temporal position and have the positions of
 * their row and column. The text continues after the largest of them.
 *
 * @param images In the order of the prompt; each has rows * columns tokens from `offset` on.
 */
export function promptPositions(
  numTokens: number,
  images: readonly (SquareGrid & { readonly offset: number })[],
): PromptPositions {
  const axes = new Int32Array(3 * numTokens);
  const place = (token: number, temporal: number, height: number, width: number): void => {
    axes[token] = temporal;
    axes[numTokens + token] = height;
    axes[2 * numTokens + token] = width;
  };
  /** Difference between a token's position and its index. */
  let shift = 0;
  let firstText = 0;
  const placeTextUpTo = (end: number): void => {
    for (let token = firstText; token < end; token++) place(token, token + shift, token + shift, token + shift);
  };
  for (const { offset, rows, columns } of images) {
    placeTextUpTo(offset);
    const start = offset + shift;
    for (let index = 0; index < rows * columns; index++) {
      place(offset + index, start, start + Math.floor(index / columns), start + (index % columns));
    }
    firstText = offset + rows * columns;
    shift = start + Math.max(rows, columns) - firstText;
  }
  placeTextUpTo(numTokens);
  return { axes, next: numTokens + shift };
}
