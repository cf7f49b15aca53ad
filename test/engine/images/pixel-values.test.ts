import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";

import { toPixelValues } from "../../../engine/images/pixel-values.ts";
import { parsePreprocessorConfig } from "../../../engine/images/preprocessor-config.ts";
import { computePicture, type PictureKind } from "./computed-picture.ts";

interface PixelValuesGolden {
  readonly name: string;
  readonly config: unknown;
  readonly cases: readonly {
    readonly kind: PictureKind;
    readonly width: number;
    readonly height: number;
    readonly shape: readonly number[];
    readonly first: readonly number[];
    readonly sha256: string;
  }[];
}

/** Recorded by test/fixtures/pixels/record.py from Hugging Face's processors. */
const goldens = JSON.parse(
  readFileSync(new URL("../../fixtures/pixels/pixel-values.json", import.meta.url), "utf8"),
) as readonly PixelValuesGolden[];

describe.for(goldens)("pixel values are bit-identical to Hugging Face's: $name", ({ config, cases }) => {
  const plan = parsePreprocessorConfig(config);

  test.for(cases)("$kind of $width x $height", ({ kind, width, height, shape, first, sha256 }) => {
    const result = toPixelValues(computePicture(kind, width, height), plan);
    expect(result.shape).toEqual(shape);
    expect([...result.pixelValues.subarray(0, 4)]).toEqual(first);
    expect(createHash("sha256").update(result.pixelValues).digest("hex")).toBe(sha256);
  });
});

test("a strip under a config without a crop is rejected with both numbers", () => {
  const plan = parsePreprocessorConfig({ size: { shortest_edge: 336 }, do_center_crop: false });
  expect(() => toPixelValues(computePicture("photo", 1, 2_000), plan)).toThrow(
    "The image would be 336x672000 = 225792000 pixels for the model; the limit is 16777216.",
  );
});

test("a strip that would become a square of terabytes is rejected, a panorama is not", () => {
  const plan = parsePreprocessorConfig({ image_processor_type: "LlavaImageProcessor", do_pad: true });
  expect(() => toPixelValues(computePicture("photo", 1, 100_000), plan)).toThrow(
    "The image has 1x100000 pixels, and 10000000000 when padded to the square that the model needs; the limit is 67108864.",
  );
  expect(toPixelValues(computePicture("photo", 1_200, 40), plan).shape).toEqual([3, 224, 224]);
});

test("a strip that would be scaled up to billions of rows is rejected before its weights are counted", () => {
  const plan = parsePreprocessorConfig({ size: { shortest_edge: 16_384 }, crop_size: 64, resample: 0 });
  expect(() => toPixelValues(computePicture("drawing", 1, 100_000), plan)).toThrow(
    "Resizing 100000 pixels to 1638400000 takes 819200032 steps; the limit is 134217728.",
  );
});
