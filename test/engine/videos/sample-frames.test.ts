import { expect, test } from "vitest";

import { checkSampling, equallySpacedFrames, sampleFrames } from "../../../engine/videos/sample-frames.ts";

test("equal distances equal numpy.linspace(0, n - 1, count, dtype=int)", () => {
  expect(equallySpacedFrames(100, 8)).toEqual([0, 14, 28, 42, 56, 70, 84, 99]);
  expect(equallySpacedFrames(10, 4)).toEqual([0, 3, 6, 9]);
  expect(equallySpacedFrames(3, 8)).toEqual([0, 1, 2]);
  expect(equallySpacedFrames(7, 1)).toEqual([0]);
});

const file = { width: 4, height: 2, numFrames: 300, framesPerSecond: 30, durationSeconds: 10 };
const limits = { defaultCount: 8, maxFrames: 16 };

test("a request chooses a number of frames or a rate, up to the limit", () => {
  expect(sampleFrames(file, {}, limits)).toHaveLength(8);
  expect(sampleFrames(file, { numFrames: 5 }, limits)).toEqual([0, 74, 149, 224, 299]);
  expect(sampleFrames(file, { framesPerSecond: 0.5 }, limits)).toEqual([0, 74, 149, 224, 299]);
  expect(sampleFrames(file, { framesPerSecond: 30 }, limits)).toHaveLength(16);
  expect(sampleFrames(file, { numFrames: Number.MAX_SAFE_INTEGER }, limits)).toHaveLength(16);
  expect(sampleFrames({ ...file, durationSeconds: 0 }, { framesPerSecond: 1 }, limits)).toEqual([0]);
});

test.for([
  [{ numFrames: 0 }, "numFrames"],
  [{ numFrames: 1.5 }, "numFrames"],
  [{ framesPerSecond: 0 }, "framesPerSecond"],
  [{ framesPerSecond: Number.NaN }, "framesPerSecond"],
  [{ numFrames: 2, framesPerSecond: 1 }, "framesPerSecond"],
] as const)("the sampling %j is rejected", ([sampling, name]) => {
  expect(() => checkSampling(sampling)).toThrow(
    expect.objectContaining({ code: "invalid_argument", parameter: `videoSampling.${name}` }),
  );
});
