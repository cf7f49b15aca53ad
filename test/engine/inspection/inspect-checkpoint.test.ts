import { expect, test } from "vitest";

import { inspectCheckpoint } from "../../../engine/inspection/inspect-checkpoint.ts";
import type { ModelInspection } from "../../../engine/inspection/inspect-checkpoint.ts";
import type { WorstImage } from "../../../engine/inspection/worst-image.ts";
import type { ImageSize } from "../../../engine/multimodal/processing-info.ts";
import { goldenEngineConfig } from "../../support/engine/engine-config.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

async function inspect(
  checkpoint: string,
  largestExpectedImage?: Partial<ImageSize>,
): Promise<ModelInspection & { readonly worstImage: WorstImage }> {
  await using folder = await createTemporaryFolder();
  const config = goldenEngineConfig(checkpoint, folder.path);
  const imageLimits = { ...config.imageLimits, ...(largestExpectedImage && { largestExpectedImage }) };
  const inspection = await inspectCheckpoint({ ...config, imageLimits }, {}, new AbortController().signal);
  const { worstImage } = inspection;
  if (worstImage === null) throw new Error("the model takes images");
  return { ...inspection, worstImage };
}

// Rows of patches of 6 pixels, each with an end token.
test.for<[string, Partial<ImageSize> | undefined, Partial<WorstImage>]>([
  ["none", undefined, { size: { width: 60, height: 48 }, boundedBy: "model", numEmbeddings: 80, numTokens: 89 }],
  ["of both edges", { width: 30, height: 12 }, { boundedBy: "settings", numEmbeddings: 10, numTokens: 13 }],
  ["of one edge", { height: 12 }, { size: { width: 60, height: 12 }, boundedBy: "settings", numEmbeddings: 20 }],
  ["larger than the model's", { width: 600, height: 480 }, { boundedBy: "model", numEmbeddings: 80 }],
])("an expected size, %s, makes the planned picture smaller, never larger", async ([, size, expected]) => {
  const { worstImage } = await inspect("fuyu", size);
  expect(worstImage).toMatchObject(expected);
});

test("an expected size lowers the memory of one picture, but not the encoder cache or the limits", async () => {
  const largest = await inspect("qwen2-vl");
  const expected = await inspect("qwen2-vl", { width: 24, height: 24 });
  expect(expected.worstImage.numBytes).toBeLessThan(largest.worstImage.numBytes);
  expect(expected.worstImage.numFitting).toBeGreaterThanOrEqual(largest.worstImage.numFitting);
  expect(expected.memory.step.visionEncoderBytes).toBeLessThan(largest.memory.step.visionEncoderBytes);
  expect(expected.memory.encoderCache).toEqual(largest.memory.encoderCache);
  expect(expected.worstImage.maxEmbeddings).toBe(largest.worstImage.maxEmbeddings);
});
