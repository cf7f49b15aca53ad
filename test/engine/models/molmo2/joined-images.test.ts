/** Pictures of a prompt see each other, so what one of them has in the KV cache depends on all. */
import { expect, test } from "vitest";

import { createDataUrlImageSource, createEngine, createSamplingParams, type Engine } from "../../../../engine/index.ts";
import { hubCases, hubPictureReference, writeHubCheckpoint } from "../../../support/checkpoints/hub-checkpoints.ts";
import { hubEngineConfig, compareHubAnswers } from "../../../support/engine/hub-answers.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";

async function answer(engine: Engine, pictures: readonly string[]): Promise<{ tokens: number[]; numCached: number }> {
  const images = await Promise.all(
    pictures.map(async (name) => ({ type: "image", reference: await hubPictureReference(name) }) as const),
  );
  const content = [...images, { type: "text", text: "What differs?" }] as const;
  const request = {
    requestId: pictures.join(),
    prompt: { kind: "chat", messages: [{ role: "user", content }], addGenerationPrompt: true },
    samplingParams: createSamplingParams({ temperature: 0, maxTokens: 16, ignoreEos: true }),
  } as const;
  const tokens: number[] = [];
  let numCached = 0;
  for await (const output of engine.generate(request)) {
    tokens.push(...output.tokenIds);
    numCached = output.numCachedTokens;
  }
  return { tokens, numCached };
}

test.for(["slots", "paged"] as const)(
  "an image is not reused over %s in a prompt with another one",
  async (kvLayout) => {
    await using folder = await createTemporaryFolder();
    await using cache = await createTemporaryFolder();
    await writeHubCheckpoint("molmo2", "v4", folder.path);
    const config = {
      ...hubEngineConfig(folder.path, cache.path),
      kvLayout,
      blockSize: undefined,
      maxNumBatchedTokens: 140,
    };
    const settings = kvLayout === "paged" ? { ...config, blockSize: 8, numBlocks: 100 } : config;
    const sources = { imageSources: [createDataUrlImageSource()] };
    const start = async (): Promise<Engine> => {
      const engine = createEngine(settings, sources);
      await engine.ready;
      return engine;
    };
    const fresh = await start();
    const expected = await answer(fresh, ["drawing.png", "square.png"]);
    await fresh.close();
    const engine = await start();
    try {
      await answer(engine, ["drawing.png", "photo.png"]);
      // The first picture is the same, and its tokens have seen another second one.
      const { tokens, numCached } = await answer(engine, ["drawing.png", "square.png"]);
      expect(tokens).toEqual(expected.tokens);
      expect(numCached).toBeLessThan(16);
      const again = await answer(engine, ["drawing.png", "square.png"]);
      expect(again.tokens).toEqual(expected.tokens);
      expect(again.numCached).toBeGreaterThan(60);
    } finally {
      await engine.close();
    }
  },
);

test("rejects images that have no room in one step, and answers others", async () => {
  await using folder = await createTemporaryFolder();
  await using cache = await createTemporaryFolder();
  await writeHubCheckpoint("molmo2", "v4", folder.path);
  // A picture has at most 44 tokens.
  const config = { ...hubEngineConfig(folder.path, cache.path), maxNumBatchedTokens: 60 };
  const engine = createEngine(config, { imageSources: [createDataUrlImageSource()] });
  try {
    await engine.ready;
    const three = ["drawing.png", "photo.png", "square.png"];
    await expect(answer(engine, three)).rejects.toThrow("computes all images of a prompt in one step");
    const others = hubCases("molmo2").filter(({ pictures }) => pictures.length === 1);
    const { numAnswers } = await compareHubAnswers(engine, folder.path, others);
    expect(numAnswers).toBe(10);
  } finally {
    await engine.close();
  }
});
