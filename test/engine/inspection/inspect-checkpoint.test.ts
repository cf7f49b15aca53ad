import { cp, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { createEngine } from "../../../engine/index.ts";
import type { Engine, EngineOptions } from "../../../engine/index.ts";
import { inspectCheckpoint } from "../../../engine/inspection/inspect-checkpoint.ts";
import type { ModelInspection } from "../../../engine/inspection/inspect-checkpoint.ts";
import type { WorstImage } from "../../../engine/inspection/worst-image.ts";
import type { ImageSize } from "../../../engine/multimodal/processing-info.ts";
import { numUsableCores } from "../../../engine/runtime/usable-cores.ts";
import { writeHubCheckpoint } from "../../support/checkpoints/hub-checkpoints.ts";
import { goldenEngineConfig, smallEngineConfig } from "../../support/engine/engine-config.ts";
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

test.runIf(numUsableCores() >= 2)(
  "a step needs room for a whole image beside the sequences of one copy only",
  async () => {
    await using folder = await createTemporaryFolder();
    const model = join(folder.path, "gemma3");
    await mkdir(model);
    await writeHubCheckpoint("gemma3", "v5", model);
    const settings = { ...smallEngineConfig(model, folder.path), numThreads: 2, maxNumSequences: 16 };
    const inspectWith = (maxNumBatchedTokens: number): Promise<ModelInspection> =>
      inspectCheckpoint({ ...settings, maxNumBatchedTokens }, {}, new AbortController().signal);
    const { worstImage, numCopies } = await inspectWith(512);
    expect(numCopies).toBe(2);
    const fewest = worstImage!.maxEmbeddings + settings.maxNumSequences / numCopies - 1;
    await expect(inspectWith(fewest)).resolves.toMatchObject({ numCopies });
    await expect(inspectWith(fewest - 1)).rejects.toThrow(`steps of ${fewest} tokens or more`);
    await using engine = startedEngine({ ...settings, maxNumBatchedTokens: fewest });
    await expect(engine.ready).resolves.toBeUndefined();
  },
);

function startedEngine(options: EngineOptions): Pick<Engine, "ready"> & AsyncDisposable {
  const engine = createEngine(options);
  return { ready: engine.ready, [Symbol.asyncDispose]: () => engine.close() };
}

test("a field of generation_config.json that would end the start is reported", async () => {
  await using folder = await createTemporaryFolder();
  const config = goldenEngineConfig("qwen2", folder.path);
  const model = join(folder.path, "model");
  await cp(config.model, model, { recursive: true });
  await writeFile(join(model, "generation_config.json"), '{"repetition_penalty": 0}');
  await expect(inspectCheckpoint({ ...config, model }, {}, new AbortController().signal)).rejects.toMatchObject({
    code: "invalid_checkpoint",
    message: "generation_config.json of the checkpoint: repetitionPenalty must be greater than zero, got 0.",
  });
});
