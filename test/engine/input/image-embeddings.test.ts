/** Embeddings of images through the whole engine, up to the tokens that transformers generates for the images. */
import { afterAll, beforeAll, expect, test } from "vitest";

import { createDataUrlImageSource, createEngine, createSamplingParams } from "../../../engine/index.ts";
import type { ChatMessage, ContentPart, Engine, Prompt } from "../../../engine/index.ts";
import { goldenEngineConfig } from "../../support/engine-config.ts";
import { loadGoldens } from "../../support/goldens.ts";
import type { GoldenCase } from "../../support/goldens.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";
import { numpyFile } from "../multimodal/embedding-files.ts";

let cache: TemporaryFolder;

beforeAll(async () => {
  cache = await createTemporaryFolder();
});
afterAll(async () => {
  await cache[Symbol.asyncDispose]();
});

async function startEngine(name: string): Promise<Engine> {
  const config = {
    ...goldenEngineConfig(name, cache.path),
    enableMmEmbeds: true,
  } as const;
  const engine = createEngine(config, { imageSources: [createDataUrlImageSource()] });
  await engine.ready;
  return engine;
}

/** The golden's conversation with its images inserted in order. */
function fill({ messages }: GoldenCase, images: readonly ContentPart[]): ChatMessage[] {
  const parts = [...images];
  return messages.map(({ role, content }) => ({
    role,
    content: content.map((part) => (part.type === "image" ? (parts.shift() as ContentPart) : part)),
  }));
}

async function generate(engine: Engine, prompt: Prompt, maxTokens: number): Promise<readonly number[]> {
  const samplingParams = createSamplingParams({ temperature: 0, maxTokens, ignoreEos: true });
  const tokenIds: number[] = [];
  for await (const output of engine.generate({ requestId: crypto.randomUUID(), prompt, samplingParams })) {
    tokenIds.push(...output.tokenIds);
  }
  return tokenIds;
}

test("embeddings sent in place of pictures give the same inputs as the pictures", async () => {
  const engine = await startEngine("llava-default");
  const { cases } = await loadGoldens("llava-default");
  for (const golden of cases.filter(({ pictures }) => pictures.length > 0)) {
    const features = golden.imageFeatures ?? new Float32Array();
    const size = features.length / golden.pictures.length;
    const images = golden.pictures.map((_, index): ContentPart => {
      const rows = Buffer.from(features.slice(index * size, (index + 1) * size).buffer);
      const file = numpyFile("<f4", [1, 16, size / 16], rows);
      return { type: "image_embeds", reference: `data:;base64,${file.toString("base64")}` };
    });
    const prompt = { kind: "chat", messages: fill(golden, images), addGenerationPrompt: true } as const;
    expect(await generate(engine, prompt, golden.greedyTokenIds.length)).toEqual(golden.greedyTokenIds);
  }
  await engine.close();
});
