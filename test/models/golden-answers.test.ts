/** Whole models, from a request with pictures to its tokens, against what transformers generates greedily. */
import { join } from "node:path";
import { expect, test } from "vitest";

import { createDataUrlImageSource, createEngine, createSamplingParams } from "../../engine/index.ts";
import type { EngineConfig, GenerationRequest } from "../../engine/index.ts";
import { goldensFolder, loadGoldens, pictureReference, type GoldenCase } from "../support/goldens.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";

type Prompt = GenerationRequest["prompt"];

async function chat({ messages, pictures }: GoldenCase): Promise<Prompt> {
  const references = await Promise.all(pictures.map(pictureReference));
  const filled = messages.map(({ role, content }) => ({
    role,
    content: content.map((part) =>
      part.type === "image" ? { type: "image" as const, reference: references.shift()! } : part,
    ),
  }));
  return { kind: "chat", messages: filled, addGenerationPrompt: true };
}

/** For checkpoints without a chat template. */
async function text({ messages, pictures }: GoldenCase): Promise<Prompt> {
  const words = messages.flatMap(({ content }) => content.map((part) => (part.type === "text" ? part.text : "")));
  const images = pictures.map(
    async (picture) => ({ type: "image", reference: await pictureReference(picture) }) as const,
  );
  return { kind: "text", text: words.join(""), addSpecialTokens: false, images: await Promise.all(images) };
}

/** As the chat template of Qwen2-VL marks pictures. */
async function qwen2Vl({ messages, pictures }: GoldenCase): Promise<Prompt> {
  const marks = messages.flatMap(({ content }) =>
    content.map((part) => (part.type === "text" ? part.text : "<|vision_start|><|image_pad|><|vision_end|>")),
  );
  const images = pictures.map(
    async (picture) => ({ type: "image", reference: await pictureReference(picture) }) as const,
  );
  return { kind: "text", text: marks.join(""), addSpecialTokens: false, images: await Promise.all(images) };
}

const models = [
  { name: "llava-siglip", toPrompt: chat },
  { name: "smolvlm", toPrompt: chat },
  { name: "fuyu", toPrompt: text },
  { name: "qwen2-vl", toPrompt: qwen2Vl },
] as const;

test.for(models)("$name answers about pictures with the tokens of transformers", async ({ name, toPrompt }) => {
  await using cache = await createTemporaryFolder();
  const config: EngineConfig = {
    model: join(goldensFolder, name),
    dtype: "float32",
    device: "cpu",
    deviceId: 0,
    maxModelLen: null,
    maxNumSequences: 4,
    // Fewer than a picture has, so that prompts end inside of one.
    maxNumBatchedTokens: 24,
    maxNumWaiting: 4,
    logitsProcessors: [],
    logitsProcessorPath: [],
    numThreads: 1,
    cacheFolder: cache.path,
    imageLimits: { maxImagesPerPrompt: 3, maxImageBytes: 1e6, maxImagePixels: 1e6, fetchTimeoutMs: 5000 },
  };
  const engine = createEngine(config, { imageSources: [createDataUrlImageSource()] });
  try {
    await engine.ready;
    const cases = (await loadGoldens(name)).cases.filter(({ pictures }) => pictures.length > 0);
    const ask = async (golden: GoldenCase): Promise<void> => {
      const tokenIds: number[] = [];
      const request = {
        requestId: golden.name,
        prompt: await toPrompt(golden),
        samplingParams: createSamplingParams({ temperature: 0, maxTokens: 32, ignoreEos: true }),
      };
      for await (const output of engine.generate(request)) tokenIds.push(...output.tokenIds);
      expect(tokenIds).toEqual(golden.greedyTokenIds);
    };
    await Promise.all(cases.map(ask));
    // Again, on the keys and values that the first time left behind.
    for (const golden of cases) await ask(golden);
  } finally {
    await engine.close();
  }
});
