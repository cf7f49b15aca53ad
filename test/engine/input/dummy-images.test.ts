import { describe, expect, test } from "vitest";

import { imageOfOutline } from "../../../engine/core/image-outline.ts";
import { createLargestImage, createWarmUpImage } from "../../../engine/input/dummy-images.ts";
import { numEmbeddingsOf } from "../../../engine/multimodal/placeholder.ts";
import { createGoldenInputs, imageLimits } from "./golden-inputs.ts";

const { signal } = new AbortController();

async function largestImage(name: string, limits: Partial<typeof imageLimits> = {}) {
  await using inputs = await createGoldenInputs(name, { settings: { imageLimits: { ...imageLimits, ...limits } } });
  const { imageInputs, options } = inputs;
  const { tokenizer, vocabSize } = options;
  const expected = limits.largestExpectedImage;
  const outline = await createLargestImage(imageInputs!, { expected, tokenizer, vocabSize }, signal);
  return { outline, image: imageOfOutline(outline), maxEmbeddings: imageInputs!.info.maxTokensPerItem };
}

describe.for(["llava-default", "fuyu", "qwen2-vl", "smolvlm"])("%s", (name) => {
  test("the largest image has as many embeddings as any may have", async () => {
    const { image, maxEmbeddings } = await largestImage(name);
    expect(numEmbeddingsOf(image)).toBe(maxEmbeddings);
  });

  test("an outline keeps integers and the shapes of pixels, and no pixels", async () => {
    const { outline, image } = await largestImage(name);
    expect(outline.shapes.size).toBeGreaterThan(0);
    expect([...image.tensors.keys()].toSorted()).toEqual(
      [...outline.shapes.keys(), ...outline.tensors.keys()].toSorted(),
    );
    for (const [key, shape] of outline.shapes) {
      const { data } = image.tensors.get(key)!;
      expect(data).toHaveLength(shape.reduce((product, size) => product * size, 1));
    }
    for (const [key, tensor] of outline.tensors) {
      expect(tensor.elementType).not.toBe("float32");
      expect(image.tensors.get(key)).toBe(tensor);
    }
  });
});

test("expected sizes and limits of pictures make the image smaller", async () => {
  const { image, maxEmbeddings } = await largestImage("fuyu", { largestExpectedImage: { width: 30, height: 12 } });
  expect(maxEmbeddings).toBe(80);
  expect(numEmbeddingsOf(image)).toBe(10);
  // 60 x 48 pixels, shortened by tenths: 38 x 30 are too many, 34 x 27 have 6 x 5 patches.
  const accepted = await largestImage("fuyu", { maxImagePixels: 1000 });
  expect(numEmbeddingsOf(accepted.image)).toBe(30);
});

test.for([
  ["any picture", {}, 32],
  ["a picture of 32 x 32 pixels", { maxImagePixels: 32 * 32 }, 32],
  ["smaller pictures only", { maxImagePixels: 1000 }, 28],
  ["a single pixel", { maxImagePixels: 1 }, 1],
] as const)("the warm-up picture has the size that limits which accept %s allow", async ([, limits, edge]) => {
  await using inputs = await createGoldenInputs("fuyu", { settings: { imageLimits: { ...imageLimits, ...limits } } });
  const { tokenizer, vocabSize } = inputs.options;
  const image = await createWarmUpImage(inputs.imageInputs!, { tokenizer, vocabSize }, signal);
  const patchSize = 6;
  expect(numEmbeddingsOf(image!)).toBe(Math.ceil(edge / patchSize) ** 2);
});

test("there is no warm-up picture where the limits reject all", async () => {
  const settings = { imageLimits: { ...imageLimits, maxImagePixels: 0 } };
  await using inputs = await createGoldenInputs("fuyu", { settings });
  const { tokenizer, vocabSize } = inputs.options;
  expect(await createWarmUpImage(inputs.imageInputs!, { tokenizer, vocabSize }, signal)).toBe(null);
});
