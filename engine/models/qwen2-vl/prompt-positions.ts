/** Positions of Qwen2-VL's tokens: text on a line, the embeddings of a picture on a plane at one point of it. */
import type { PromptPositions } from "../../multimodal/prompt-positions.ts";
import type { SquareGrid } from "../patches/square-grid.ts";

/** A picture or an item of a video in a prompt: rows * columns tokens from `offset` on. */
export interface PlacedGrid extends SquareGrid {
  readonly offset: number;
  /** Given for an item of a video: its index, and its place in time among the items. */
  readonly item?: { readonly index: number; readonly time: number };
}

/**
 * The embeddings of a picture share one temporal position and have the positions of their row and column. Items of a
 * video without text between them are one block, in which the temporal position follows their times. The text continues
 * after the largest of all positions, as in the paper (https://arxiv.org/abs/2409.12191), in vLLM and in transformers 4.
 * transformers 5 does not count the temporal one, so that a long video shares positions with the text after it.
 *
 * @param images In the order of the prompt.
 */
export function promptPositions(numTokens: number, images: readonly PlacedGrid[]): PromptPositions {
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
  /** Of the block: its position, and the time of its first item. */
  let start = 0;
  let firstTime = 0;
  for (const { offset, rows, columns, item = { index: 0, time: 0 } } of images) {
    placeTextUpTo(offset);
    const continuesBlock = item.index > 0 && offset === firstText && offset > 0;
    if (!continuesBlock) [start, firstTime] = [offset + shift, item.time];
    const time = item.time - firstTime;
    for (let index = 0; index < rows * columns; index++) {
      place(offset + index, start + time, start + Math.floor(index / columns), start + (index % columns));
    }
    firstText = offset + rows * columns;
    shift = start + Math.max(rows, columns, time + 1) - firstText;
  }
  placeTextUpTo(numTokens);
  return { axes, next: numTokens + shift };
}
