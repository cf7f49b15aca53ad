import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import type { DecodedImage } from "../../../engine/images/decode-image.ts";
import { resample, type ResampleOptions, takeFilterKernel } from "../../../engine/images/resample.ts";
import {
  type AxisWindow,
  computeCoefficients,
  type ResampleFilterName,
} from "../../../engine/resample-coefficients.ts";
import { computePicture, type PictureKind } from "./computed-picture.ts";

const filters: readonly ResampleFilterName[] = ["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"];

type FilterName = Exclude<ResampleFilterName, "nearest">;
type FilteredOptions = ResampleOptions & {
  readonly filter: FilterName;
  readonly window: NonNullable<ResampleOptions["window"]>;
};

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
  readFileSync(new URL("../../fixtures/pixels/resampled.json", import.meta.url), "utf8"),
) as readonly Row[];

describe("the resized picture is bit-identical to Pillow's", () => {
  test.for(rows)("%s %ix%i to %ix%i, filter %i", ([kind, width, height, toWidth, toHeight, filter, sha256]) => {
    const picture = computePicture(kind, width, height);
    const resized = resample(picture, { width: toWidth, height: toHeight, filter: filters[filter]!, window: null });
    expect([resized.width, resized.height]).toEqual([toWidth, toHeight]);
    expect(createHash("sha256").update(resized.data).digest("hex")).toBe(sha256);
  });
});

test("a window equals the same part of the whole picture", () => {
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

/** `resample` with one sum at a time: the plain form of the kernel's vectorized work. */
function resamplePlainly(image: DecodedImage, { width, height, filter, window }: FilteredOptions): Uint8Array {
  const columns = { inputSize: image.width, outputSize: width, start: window.left, length: window.width };
  const rows = { inputSize: image.height, outputSize: height, start: window.top, length: window.height };
  if (image.height - height > 2 * Math.max(image.width - width, 0)) {
    const lowered = filterAxis(image.data, { ...rows, filter, lines: 1, tapStride: image.width * 3 });
    return filterAxis(lowered, { ...columns, filter, lines: window.height, tapStride: 3 });
  }
  const narrowed = filterAxis(image.data, { ...columns, filter, lines: image.height, tapStride: 3 });
  return filterAxis(narrowed, { ...rows, filter, lines: 1, tapStride: window.width * 3 });
}

/** Filters `lines` consecutive runs of pixels or rows, which have `tapStride` samples each. */
function filterAxis(
  input: Uint8Array,
  { filter, lines, tapStride, ...axis }: AxisWindow & { filter: FilterName; lines: number; tapStride: number },
): Uint8Array {
  const { maxTaps, starts, numTaps, weights } = computeCoefficients(filter, axis);
  const output = new Uint8ClampedArray(lines * axis.length * tapStride);
  for (let index = 0; index < output.length; index++) {
    const place = Math.floor(index / tapStride) % axis.length;
    const line = Math.floor(index / (tapStride * axis.length));
    let sum = 1 << 21;
    for (let tap = 0; tap < numTaps[place]!; tap++) {
      const from = (line * axis.inputSize + starts[place]! + tap) * tapStride + (index % tapStride);
      sum += weights[place * maxTaps + tap]! * input[from]!;
    }
    output[index] = sum >> 22;
  }
  return new Uint8Array(output.buffer);
}

describe("vectorized sums equal sequential sums", () => {
  const extremes = (length: number, seed: number): Uint8Array =>
    Uint8Array.from(
      { length },
      (_, index) => [0, 255, index * seed, seed][Math.imul(index + seed, 0x9e3779b1) >>> 30]!,
    );
  const isSame = (image: DecodedImage, options: FilteredOptions): boolean =>
    Buffer.compare(resample(image, options).data, resamplePlainly(image, options)) === 0;

  test("for any sizes, filter and window, and whatever the previous resize left in memory", () => {
    const side = fc.oneof(fc.integer({ min: 1, max: 20 }), fc.integer({ min: 1, max: 300 }));
    fc.assert(
      fc.property(
        fc.tuple(side, side, side, side, fc.constantFrom(...filters.filter((name) => name !== "nearest"))),
        fc.tuple(fc.nat(), fc.nat(), fc.nat(), fc.nat(), fc.nat(65_535)),
        ([fromWidth, fromHeight, width, height, filter], [a, b, c, d, seed]) => {
          const left = a % width;
          const top = b % height;
          const window = { left, top, width: 1 + (c % (width - left)), height: 1 + (d % (height - top)) };
          const image = { width: fromWidth, height: fromHeight, data: extremes(fromWidth * fromHeight * 3, seed) };
          expect(isSame(image, { width, height, filter, window })).toBe(true);
        },
      ),
    );
  });

  test.for([
    ["a tall strip", 1, 2000, 7, 300],
    ["a wide strip", 2000, 1, 300, 7],
    ["a tall strip made one pixel", 1, 2000, 1, 1],
    ["more rows at once than the band has beyond the taps", 5, 1999, 3, 2],
    ["an enlargement of more rows than the band holds", 3, 200, 5, 700],
    ["a row that a box leaves out where the band moves", 3000, 139, 1500, 66],
    ["a row longer than the chunk that is copied at once", 30_000, 7, 40, 3],
  ] as const)("for %s", ([, fromWidth, fromHeight, width, height]) => {
    const image = { width: fromWidth, height: fromHeight, data: extremes(fromWidth * fromHeight * 3, 77) };
    for (const filter of ["box", "bicubic", "lanczos"] as const) {
      expect(isSame(image, { width, height, filter, window: { left: 0, top: 0, width, height } })).toBe(true);
    }
  });
});

test("memory beyond a photograph's needs is released", () => {
  const pageBytes = 65_536;
  expect(takeFilterKernel(100 * pageBytes).memory.buffer.byteLength).toBe(100 * pageBytes);
  const kernel = takeFilterKernel(2 * pageBytes);
  expect(kernel.memory.buffer.byteLength).toBe(2 * pageBytes);
  expect(takeFilterKernel(1)).toBe(kernel);
});

test("the middle of a strip resized to gigabytes takes only the memory of its window", () => {
  const strip = computePicture("photo", 1, 20_000);
  const window = { left: 0, top: 3_359_832, width: 336, height: 336 };
  const resized = resample(strip, { width: 336, height: 6_720_000, filter: "bicubic", window });
  expect(resized.data.byteLength).toBe(336 * 336 * 3);
});

test("the input is not changed", () => {
  const picture = computePicture("drawing", 50, 40);
  const copy = picture.data.slice();
  resample(picture, { width: 50, height: 20, filter: "bicubic", window: null });
  resample(picture, { width: 20, height: 40, filter: "bicubic", window: null });
  expect(picture.data).toEqual(copy);
});
