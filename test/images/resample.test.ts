import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { ResampleFilterName } from "../../engine/images/resample-coefficients.ts";
import { resample } from "../../engine/images/resample.ts";
import { computePicture, type PictureKind } from "./computed-picture.ts";

const filters: readonly ResampleFilterName[] = ["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"];

type Row = readonly [
  kind: PictureKind,
  width: number,
  height: number,
  toWidth: number,
  toHeight: number,
  number,
  string,
];

/** Recorded by test/fixtures/pixels/record.py from Pillow. */
const rows = JSON.parse(
  readFileSync(new URL("../fixtures/pixels/resampled.json", import.meta.url), "utf8"),
) as readonly Row[];

describe("the resized picture is Pillow's, bit by bit", () => {
  test.for(rows)("%s %ix%i to %ix%i, filter %i", ([kind, width, height, toWidth, toHeight, filter, sha256]) => {
    const picture = computePicture(kind, width, height);
    const resized = resample(picture, { width: toWidth, height: toHeight, filter: filters[filter], window: null });
    expect([resized.width, resized.height]).toEqual([toWidth, toHeight]);
    expect(createHash("sha256").update(resized.data).digest("hex")).toBe(sha256);
  });
});

test("a window is the same part of the whole", () => {
  const side = fc.integer({ min: 1, max: 40 });
  fc.assert(
    fc.property(
      fc.tuple(side, side, side, side, fc.constantFrom(...filters)),
      fc.tuple(fc.nat(), fc.nat(), fc.nat(), fc.nat()),
      ([fromWidth, fromHeight, width, height, filter], [a, b, c, d]) => {
        const left = a % width;
        const top = b % height;
        const window = { left, top, width: 1 + (c % (width - left)), height: 1 + (d % (height - top)) };
        const picture = computePicture("photo", fromWidth, fromHeight);
        const whole = resample(picture, { width, height, filter, window: null });
        const part = resample(picture, { width, height, filter, window });
        const expected = [];
        for (let row = 0; row < window.height; row++) {
          const start = ((row + top) * width + left) * 3;
          expected.push(...whole.data.subarray(start, start + window.width * 3));
        }
        expect([part.width, part.height]).toEqual([window.width, window.height]);
        expect([...part.data]).toEqual(expected);
      },
    ),
  );
});

test("the middle of a strip resized to gigabytes takes only what it shows", () => {
  const strip = computePicture("photo", 1, 20_000);
  const window = { left: 0, top: 3_359_832, width: 336, height: 336 };
  const resized = resample(strip, { width: 336, height: 6_720_000, filter: "bicubic", window });
  expect(resized.data.byteLength).toBe(336 * 336 * 3);
});

test("the input is left as it was", () => {
  const picture = computePicture("drawing", 50, 40);
  const copy = picture.data.slice();
  resample(picture, { width: 50, height: 20, filter: "bicubic", window: null });
  resample(picture, { width: 20, height: 40, filter: "bicubic", window: null });
  expect(picture.data).toEqual(copy);
});
