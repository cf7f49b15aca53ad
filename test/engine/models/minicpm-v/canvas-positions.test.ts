import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

import { canvasPositions, type CanvasPicture } from "../../../../engine/models/minicpm-v/canvas-positions.ts";

interface RecordedPrompt {
  /** Rows and columns of the whole picture, of its slices (0 for none) and of each slice, in embeddings. */
  readonly pictures: readonly (readonly [number, number, number, number, number, number])[];
  /** Tokens of text before each picture and behind the last; a negative number is that many line breaks. */
  readonly texts: readonly number[];
  readonly next: number;
  /** SHA-256 of the positions, int32 [3, numTokens]. */
  readonly axes: string;
}

const file = new URL("../../../fixtures/hub/minicpm-v-4.7/positions.json", import.meta.url);
const recorded = JSON.parse(readFileSync(file, "utf8")) as RecordedPrompt[];
const [text, embedding, start, end, sliceStart, sliceEnd, newline] = [1, 2, 3, 4, 5, 6, 7];
const markerIds = new Set([start, end, sliceStart, sliceEnd, newline]);

function spell({ pictures, texts }: RecordedPrompt): { tokenIds: number[]; placed: CanvasPicture[] } {
  const tokenIds: number[] = [];
  const placed: CanvasPicture[] = [];
  for (const [index, length] of texts.entries()) {
    for (let token = 0; token < Math.abs(length); token++) tokenIds.push(length > 0 ? text : newline);
    const picture = pictures[index];
    if (picture === undefined) break;
    const [rows, columns, sliceRows, sliceColumns, height, width] = picture;
    const offset = tokenIds.length;
    const pushCrop = (opening: number, count: number, closing: number): void => {
      tokenIds.push(opening, ...Array.from({ length: count }, () => embedding), closing);
    };
    pushCrop(start, rows * columns, end);
    for (let slice = 0; slice < sliceRows * sliceColumns; slice++) {
      if (slice > 0 && slice % sliceColumns === 0) tokenIds.push(newline);
      pushCrop(sliceStart, height * width, sliceEnd);
    }
    const isEmbed = tokenIds.slice(offset).map((token) => token === embedding);
    const each = { rows: height, columns: width };
    placed.push({
      placeholder: { offset, length: isEmbed.length, isEmbed },
      whole: { rows, columns },
      slices: sliceRows === 0 ? null : { rows: sliceRows, columns: sliceColumns, each },
    });
  }
  return { tokenIds, placed };
}

test("positions of 60 prompts equal those of transformers", () => {
  expect(recorded).toHaveLength(60);
  for (const prompt of recorded) {
    const { tokenIds, placed } = spell(prompt);
    const { axes, next } = canvasPositions(tokenIds, placed, markerIds);
    const hash = createHash("sha256").update(new Uint8Array(axes.buffer)).digest("hex");
    expect({ next, axes: hash }, JSON.stringify(prompt)).toEqual({ next: prompt.next, axes: prompt.axes });
  }
});
