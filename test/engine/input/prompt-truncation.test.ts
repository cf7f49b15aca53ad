import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import type { ContentPart, GenerationRequest, Prompt } from "../../../engine/contract/generation-request.ts";
import { createSamplingParams } from "../../../engine/contract/sampling-params.ts";
import { createDataUrlImageSource } from "../../../engine/images/data-url-image-source.ts";
import type { ProcessedPrompt } from "../../../engine/input/input-processor.ts";
import { truncatedRange } from "../../../engine/input/truncate-prompt.ts";
import { pictureReference } from "../../support/checkpoints/goldens.ts";
import { createGoldenInputs } from "./golden-inputs.ts";
import type { GoldenInputs } from "./golden-inputs.ts";

const never = new AbortController().signal;
const pictures = ["drawing.png", "photo.png", "small.png"];

function request(prompt: Prompt, fields: Partial<GenerationRequest> = {}): GenerationRequest {
  return { requestId: "request", prompt, samplingParams: createSamplingParams(), ...fields };
}

async function partsOf(pieces: readonly (string | number)[]): Promise<ContentPart[]> {
  const references = await Promise.all(pictures.map(pictureReference));
  return pieces.map((piece) =>
    typeof piece === "string"
      ? { type: "text", text: piece }
      : { type: "image", reference: references.at(piece % pictures.length)! },
  );
}

function process({ inputProcessor }: GoldenInputs, prompt: Prompt, fields: Partial<GenerationRequest> = {}) {
  return inputProcessor.process(request(prompt, fields), never);
}

describe("truncatedRange", () => {
  const image = { start: 4, end: 8 };
  test.for<[number, "left" | "right", [number, number]]>([
    [12, "left", [1, 12]],
    [11, "left", [2, 12]],
    [9, "left", [4, 12]],
    [8, "left", [8, 12]],
    [5, "left", [8, 12]],
    [4, "left", [9, 12]],
    [1, "left", [12, 12]],
    [0, "left", [12, 12]],
    [11, "right", [1, 11]],
    [8, "right", [1, 8]],
    [7, "right", [1, 4]],
    [5, "right", [1, 4]],
    [3, "right", [1, 3]],
    [0, "right", [1, 1]],
  ])("keeps of twelve tokens, one pinned and four of an image, %i from the %s", ([maxTokens, side, [start, end]]) => {
    const prompt = { numTokens: 12, numPinned: 1, images: [image] };
    expect(truncatedRange(prompt, maxTokens, side)).toEqual({ start, end });
  });
});

/** Removes one token or one image with its markers at a time, until the rest fits. */
function removeOneByOne(
  { promptTokenIds, images }: ProcessedPrompt,
  { markers, numPinned, limit, side }: { markers: number; numPinned: number; limit: number; side: "left" | "right" },
): { readonly tokenIds: readonly number[]; readonly numImages: number } {
  const units: { readonly tokenIds: readonly number[]; readonly isImage: boolean }[] = [];
  let at = numPinned;
  const addText = (end: number): void => {
    for (; at < end; at++) units.push({ tokenIds: promptTokenIds.slice(at, at + 1), isImage: false });
  };
  for (const { placeholder } of images) {
    addText(placeholder.offset - markers);
    const end = placeholder.offset + placeholder.length + markers;
    units.push({ tokenIds: promptTokenIds.slice(at, end), isImage: true });
    at = end;
  }
  addText(promptTokenIds.length);
  const numTokens = () => units.reduce((sum, { tokenIds }) => sum + tokenIds.length, numPinned);
  while (units.length > 0 && numTokens() > limit) {
    if (side === "left") units.shift();
    else units.pop();
  }
  return {
    tokenIds: [...promptTokenIds.slice(0, numPinned), ...units.flatMap(({ tokenIds }) => tokenIds)],
    numImages: units.filter(({ isImage }) => isImage).length,
  };
}

const content = fc.array(
  fc.oneof(fc.constantFrom("What", " is it? ", "naïve 🙂", " a b c d e f g h"), fc.constantFrom(0, 1, 2)),
  { minLength: 1, maxLength: 7 },
);

/** By checkpoint: tokens of a marker next to each image. */
test.for<[string, number]>([
  ["llava-default", 0],
  ["qwen2-vl", 1],
  ["smolvlm", 0],
])("never leaves a part of an image: %s", async ([name, markers]) => {
  await using inputs = await createGoldenInputs(name, { maxModelLen: 4000 });
  const numPinned = inputs.options.tokenizer.prefixIds.length;
  const truncations = fc.record({
    pieces: content,
    percent: fc.integer({ min: 0, max: 110 }),
    side: fc.constantFrom("left", "right"),
    addSpecialTokens: fc.boolean(),
  });
  const isWhole = fc.asyncProperty(truncations, async ({ pieces, percent, side, addSpecialTokens }) => {
    fc.pre(pieces.filter((piece) => typeof piece === "number").length <= 3);
    const prompt = { kind: "parts", parts: await partsOf(pieces), addSpecialTokens } as const;
    const whole = await process(inputs, prompt);
    const limit = Math.max(1, Math.ceil((whole.promptTokenIds.length * percent) / 100));
    const pinned = addSpecialTokens ? numPinned : 0;
    const expected = removeOneByOne(whole, { markers, numPinned: pinned, limit, side });
    // A prompt of which only pinned tokens remain is rejected.
    fc.pre(expected.tokenIds.length > pinned);
    const { promptTokenIds, images, numOmittedImages } = await process(inputs, prompt, {
      truncatePromptTokens: limit,
      truncationSide: side,
    });
    expect(promptTokenIds).toEqual(expected.tokenIds);
    const kept = side === "left" ? whole.images.slice(-expected.numImages) : whole.images.slice(0, expected.numImages);
    expect(images.map(({ mmHash }) => mmHash)).toEqual(
      (expected.numImages === 0 ? [] : kept).map(({ mmHash }) => mmHash),
    );
    expect(numOmittedImages).toBe(whole.images.length - expected.numImages);
    for (const { placeholder } of images) {
      const { offset, length } = placeholder;
      const isEmbed = placeholder.isEmbed ?? Array.from({ length }, () => true);
      const tokenIds = promptTokenIds.slice(offset, offset + length).filter((_, index) => isEmbed[index]);
      expect(new Set(tokenIds)).toEqual(new Set([inputs.imageInputs!.imageTokenId]));
      expect(tokenIds.length).toBeGreaterThan(0);
    }
  });
  await fc.assert(isWhole, { numRuns: 60 });
});

test("does not fetch the images that go in any case, and counts them in errors of the others", async () => {
  const fetched: string[] = [];
  const data = createDataUrlImageSource();
  const source: typeof data = {
    schemes: ["data"],
    fetch: async (reference, options) => {
      fetched.push(reference);
      return data.fetch(reference, options);
    },
  };
  await using inputs = await createGoldenInputs("llava-default", { sources: [source] });
  const [drawing = "", photo = ""] = await Promise.all(pictures.map(pictureReference));
  const broken = "data:image/png;base64,A";
  const image = (reference: string): ContentPart => ({ type: "image", reference });
  const prompt = (...references: string[]) =>
    ({ kind: "parts", parts: references.map(image), addSpecialTokens: false }) as const;
  const { images, numOmittedImages } = await process(inputs, prompt(broken, photo, drawing), {
    truncatePromptTokens: 40,
  });
  expect(fetched).toEqual([photo, drawing]);
  expect([images.length, numOmittedImages]).toEqual([2, 1]);
  const failing = process(inputs, prompt(drawing, photo, broken), { truncatePromptTokens: 40 });
  await expect(failing).rejects.toMatchObject({ parameter: "prompt.images[2]" });
});

test("-1 leaves room for the output in the model's length", async () => {
  await using inputs = await createGoldenInputs("llava-default", { maxModelLen: 50 });
  const prompt = { kind: "tokens", tokenIds: Array.from({ length: 80 }, (_, index) => 100 + index) } as const;
  const withOutput = (maxTokens: number | null) => ({
    truncatePromptTokens: -1,
    samplingParams: createSamplingParams({ maxTokens }),
  });
  const lengthWith = async (maxTokens: number | null) =>
    (await process(inputs, prompt, withOutput(maxTokens))).promptTokenIds.length;
  expect(await lengthWith(null)).toBe(49);
  expect(await lengthWith(10)).toBe(40);
  expect(await lengthWith(49)).toBe(1);
  const { promptTokenIds } = await process(inputs, prompt, withOutput(48));
  expect(promptTokenIds).toEqual([178, 179]);
  await expect(process(inputs, prompt, withOutput(50))).rejects.toMatchObject({
    code: "invalid_argument",
    parameter: "samplingParams.maxTokens",
    message: expect.stringMatching(/maxTokens is 50; the model length of 50/),
  });
});

test.for([0, -2, 51, 1.5])("rejects a truncation to %d tokens", async (truncatePromptTokens) => {
  await using inputs = await createGoldenInputs("llava-default", { maxModelLen: 50 });
  const prompt = { kind: "tokens", tokenIds: [5, 6] } as const;
  await expect(process(inputs, prompt, { truncatePromptTokens })).rejects.toMatchObject({
    code: "invalid_argument",
    parameter: "truncatePromptTokens",
    message: expect.stringContaining(String(truncatePromptTokens)),
  });
});

test("an image that alone is longer than the limit is rejected with both numbers", async () => {
  await using inputs = await createGoldenInputs("llava-default");
  const prompt = { kind: "parts", parts: await partsOf([0]), addSpecialTokens: false } as const;
  await expect(process(inputs, prompt, { truncatePromptTokens: 15 })).rejects.toMatchObject({
    code: "prompt_too_long",
    message: expect.stringMatching(/no part of it fits into the 15 /),
  });
});

test("without all images, the model sees the last one, and the others keep their tokens", async () => {
  for (const name of ["llava-default", "qwen2-vl"]) {
    await using all = await createGoldenInputs(name);
    await using last = await createGoldenInputs(name, { addAllImages: false });
    const prompt = { kind: "parts", parts: await partsOf(["a", 0, "b", 1, 2]), addSpecialTokens: true } as const;
    const withAll = await process(all, prompt);
    const withLast = await process(last, prompt);
    expect(withLast.promptTokenIds).toEqual(withAll.promptTokenIds);
    expect(withLast.positions).toEqual(withAll.positions);
    expect(withLast.images).toEqual(withAll.images.slice(2));
    expect([withAll.numOmittedImages, withLast.numOmittedImages]).toEqual([0, 2]);
  }
});
