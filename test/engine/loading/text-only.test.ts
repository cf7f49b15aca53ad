/** A vision-language model whose limits allow no images. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { loadModel } from "../../../engine/loading/load-model.ts";
import { goldensFolder } from "../../support/checkpoints/goldens.ts";
import { goldenEngineConfig } from "../../support/engine/engine-config.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const signal = new AbortController().signal;
const prompt = { kind: "chat", messages: [{ role: "user", content: "Hello" }], addGenerationPrompt: true } as const;

test("its engine thread has no vision encoder, and its prompts of text are the same", async () => {
  await using folder = await createTemporaryFolder();
  const config = goldenEngineConfig("llava-default", folder.path);
  const load = (maxImagesPerPrompt: number) =>
    loadModel({ ...config, imageLimits: { ...config.imageLimits, maxImagesPerPrompt } }, { imageSources: [] }, signal);
  await using withImages = await load(1);
  await using textOnly = await load(0);
  expect(withImages.modelInfo.acceptsImages).toBe(true);
  expect(withImages.workerOptions).toMatchObject({ model: { visionEncoder: {} }, maxEmbeddingsPerImage: 16 });
  expect(textOnly.modelInfo.acceptsImages).toBe(false);
  expect(textOnly.workerOptions).toMatchObject({ model: { visionEncoder: null }, maxEmbeddingsPerImage: 0 });

  const { promptTokenIds } = await withImages.inputProcessor.process({ prompt }, signal);
  expect((await textOnly.inputProcessor.process({ prompt }, signal)).promptTokenIds).toEqual(promptTokenIds);
  const picture = await readFile(join(goldensFolder, "pictures/drawing.png"), "base64");
  const image = { type: "image", reference: `data:image/png;base64,${picture}` } as const;
  const withPicture = { ...prompt, messages: [{ role: "user", content: [image] }] } as const;
  await expect(textOnly.inputProcessor.process({ prompt: withPicture }, signal)).rejects.toMatchObject({
    code: "too_many_images",
    message: "The prompt has 1 images; the limit is 0, set by the server.",
  });
});
