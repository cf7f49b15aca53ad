/** Videos of Qwen2.5-VL that take more positions than tokens: their seconds are positions. */
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";

import { createDataUrlImageSource, createEngine, createSamplingParams } from "../../../../engine/index.ts";
import type { Engine } from "../../../../engine/index.ts";
import { writeHubCheckpoint } from "../../../support/checkpoints/hub-checkpoints.ts";
import { hubEngineConfig } from "../../../support/engine/hub-answers.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";

const maxModelLen = 256;
const picture = readFileSync(new URL("../../../fixtures/hub/pictures/strip.png", import.meta.url), "base64");
/** Two items, of which the second is 4 / framesPerSecond positions after the first. */
const reference = `data:video/jpeg;base64,${Array(4).fill(picture).join(",")}`;

let engine: Engine;
const folders: AsyncDisposable[] = [];

beforeAll(async () => {
  const [folder, cache] = await Promise.all([createTemporaryFolder(), createTemporaryFolder()]);
  folders.push(folder, cache);
  await writeHubCheckpoint("qwen2.5-vl", "v4", folder.path);
  const config = { ...hubEngineConfig(folder.path, cache.path), maxModelLen };
  engine = createEngine(config, { imageSources: [createDataUrlImageSource()] });
  await engine.ready;
});

afterAll(async () => {
  await engine.close();
  await Promise.all(folders.map((folder) => folder[Symbol.asyncDispose]()));
});

async function ask(framesPerSecond: number) {
  const content = [
    { type: "video", reference },
    { type: "text", text: "What?" },
  ] as const;
  const samplingParams = createSamplingParams({ temperature: 0, maxTokens: 200, ignoreEos: true });
  const prompt = { kind: "chat", messages: [{ role: "user", content }], addGenerationPrompt: true } as const;
  const request = { requestId: String(framesPerSecond), prompt, samplingParams, videoSampling: { framesPerSecond } };
  let finishReason: string | null = null;
  let numTokens = 0;
  for await (const output of engine.generate(request)) {
    numTokens += output.tokenIds.length;
    ({ finishReason } = output);
  }
  return { numTokens, finishReason };
}

test("an answer ends where its positions reach the model's length", async () => {
  const earlier = await ask(4 / 150);
  const later = await ask(4 / 170);
  expect(earlier).toMatchObject({ finishReason: "length" });
  expect(later).toEqual({ finishReason: "length", numTokens: earlier.numTokens - 20 });
  expect(earlier.numTokens).toBeLessThan(maxModelLen - 150);
});

test("a video whose times leave no position for the output is rejected", async () => {
  await expect(ask(4 / 256)).rejects.toMatchObject({ code: "prompt_too_long", parameter: "prompt" });
  await expect(ask(Number.MIN_VALUE)).rejects.toMatchObject({ code: "prompt_too_long" });
});
