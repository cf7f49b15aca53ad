/** Embeddings of images through the whole engine, up to the tokens that transformers generates for the images. */
import { afterAll, beforeAll, expect, test } from "vitest";

import { createDataUrlImageSource, createEngine, createSamplingParams } from "../../../engine/index.ts";
import type { ChatMessage, ContentPart, Engine, ImagePart, Prompt } from "../../../engine/index.ts";
import { loadGoldens } from "../../support/checkpoints/goldens.ts";
import type { GoldenCase } from "../../support/checkpoints/goldens.ts";
import { goldenEngineConfig } from "../../support/engine/engine-config.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";
import { qwen2Vl, text } from "../models/golden-prompts.ts";
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

type Grid = readonly [number, number, number];

function embeddings(rows: Float32Array, hiddenSize: number, grid?: Grid): ImagePart {
  const file = numpyFile("<f4", [rows.length / hiddenSize, hiddenSize], Buffer.from(rows.slice().buffer));
  const reference = `data:;base64,${file.toString("base64")}`;
  return { type: "image_embeds", reference, ...(grid && { grid }) };
}

const hiddenSize = 64;

/** Grids of the golden's pictures: recorded, or for Fuyu counted in its prompt, whose rows of patches end by newlines. */
function gridsOf(name: string, golden: GoldenCase): readonly Grid[] {
  if (golden.grids !== undefined) return golden.grids;
  const [imageTokenId, newlineId] = [2, 3];
  expect(name).toBe("fuyu");
  const count = (wanted: number): number => golden.promptTokenIds.filter((tokenId) => tokenId === wanted).length;
  return [[1, count(newlineId), count(imageTokenId) / count(newlineId)]];
}

test.for([
  ["qwen2-vl", 2],
  ["fuyu", 1],
] as const)("%s takes embeddings with their grids of patches like the pictures", async ([name, mergeSize]) => {
  const engine = await startEngine(name);
  try {
    const { cases } = await loadGoldens(name);
    for (const golden of cases.filter(({ pictures }) => pictures.length > 0)) {
      let at = 0;
      const images = gridsOf(name, golden).map((grid) => {
        const numRows = (grid[1] * grid[2]) / mergeSize ** 2;
        const rows = golden.imageFeatures!.subarray(at * hiddenSize, (at + numRows) * hiddenSize);
        at += numRows;
        return embeddings(rows, hiddenSize, grid);
      });
      const toPrompt = name === "fuyu" ? text : qwen2Vl;
      const prompt = { ...(await toPrompt(golden)), images } as Prompt;
      expect(await generate(engine, prompt, golden.greedyTokenIds.length)).toEqual(golden.greedyTokenIds);
    }
  } finally {
    await engine.close();
  }
});

test.for([
  ["none", undefined, /need their grid of patches/],
  ["of two pictures", [2, 2, 4], /\[2, 2, 4\] has 2 pictures; a still picture has 1/],
  ["of odd sides", [1, 3, 4], /\[1, 3, 4\] does not divide into squares of 2 x 2 patches/],
  ["of another size", [1, 4, 4], /\[1, 4, 4\] stands for 4 embeddings; the file has 2/],
] as const)("qwen2-vl rejects embeddings with a grid %s, naming the picture", async ([, grid, message]) => {
  const engine = await startEngine("qwen2-vl");
  try {
    const images = [embeddings(new Float32Array(2 * hiddenSize), hiddenSize, grid)];
    const prompt = { kind: "text", text: "<|image_pad|>", addSpecialTokens: false, images } as const;
    await expect(generate(engine, prompt, 1)).rejects.toMatchObject({
      code: "invalid_image",
      parameter: "prompt.images[0]",
      message: expect.stringMatching(message),
    });
  } finally {
    await engine.close();
  }
});
