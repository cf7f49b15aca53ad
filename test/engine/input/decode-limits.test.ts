/**
 * The cost of new pictures is known from their headers before any is decoded, and the work is shared between requests.
 */
import sharp from "sharp";
import { expect, test } from "vitest";

import { defaultCacheConfig } from "../../../engine/contract/default-limits.ts";
import type { GenerationRequest, ImagePart } from "../../../engine/contract/generation-request.ts";
import { createSamplingParams } from "../../../engine/contract/sampling-params.ts";
import { MultiModalCaches } from "../../../engine/multimodal/caches/multimodal-caches.ts";
import { blankPng, computePicture, encodePng, writePng } from "../images/computed-picture.ts";
import { createGoldenInputs, imageLimits } from "./golden-inputs.ts";

const never = new AbortController().signal;

function image(bytes: Uint8Array): ImagePart {
  return { type: "image", reference: `data:image/png;base64,${Buffer.from(bytes).toString("base64")}` };
}

function about(placeholder: string, pictures: readonly Uint8Array[], tenant = ""): GenerationRequest {
  const text = `${placeholder.repeat(pictures.length)} a`;
  const prompt = { kind: "text", text, addSpecialTokens: false, images: pictures.map(image) } as const;
  return { requestId: "request", prompt, samplingParams: createSamplingParams(), tenant };
}

/** A picture with only a header: decoding it fails. */
function headerOnly(width: number, height: number, bitDepth: 8 | 16 = 8): Uint8Array {
  return writePng({ width, height, bitDepth, colourType: "rgb" }, new Uint8Array(0));
}

const wide = { ...imageLimits, maxImagesPerPrompt: 16, maxImagePixels: 67_108_864, maxImageBytes: 20e6 };

test("the new pictures of a request are rejected together by their cost, with the limit", async () => {
  const limits = { ...wide, maxRequestDecodeCost: 50_000_000 };
  await using inputs = await createGoldenInputs("llava-default", {
    imageLimits: limits,
    settings: { imageLimits: limits },
    caches: new MultiModalCaches(defaultCacheConfig, null),
  });
  const pictures = Array.from({ length: 16 }, (_, index) => headerOnly(2_000, 1_000 + index, 16));
  await expect(inputs.inputProcessor.process(about("<image>", pictures), never)).rejects.toMatchObject({
    code: "image_too_large",
    parameter: "prompt.images",
    setting: "maxRequestDecodeCost",
    message:
      "Decoding the 16 new images of the prompt costs as much as 64995840 pixels of plain RGB; the limit is 50000000. Send fewer or smaller images.",
  });
  // Fewer are accepted, and then the missing pixels are found.
  const fewer = about("<image>", pictures.slice(0, 12));
  await expect(inputs.inputProcessor.process(fewer, never)).rejects.toMatchObject({
    code: "invalid_image",
    parameter: "prompt.images[0]",
  });
  // One picture several times is decoded once.
  const same = blankPng({ width: 2_000, height: 1_000, bitDepth: 16, colourType: "rgb" });
  const equal = Array.from({ length: 16 }, () => same);
  expect((await inputs.inputProcessor.process(about("<image>", equal), never)).images).toHaveLength(16);
});

test("pictures for which the prompt has no room are rejected before any is decoded", async () => {
  await using inputs = await createGoldenInputs("qwen2-vl", { maxModelLen: 40, settings: { imageLimits: wide } });
  const placeholder = inputs.imageInputs!.processor.imagePlaceholder!;
  const ask = (...pictures: readonly Uint8Array[]) =>
    inputs.inputProcessor.process(about(placeholder, pictures), never);
  await expect(ask(headerOnly(600, 600), headerOnly(601, 600), headerOnly(602, 600))).rejects.toMatchObject({
    code: "prompt_too_long",
    message: expect.stringMatching(
      /^The new images of the prompt have \d\d embeddings; next to its text there is room for \d\d\. Send fewer or smaller images\.$/,
    ),
  });
  await expect(ask(headerOnly(600, 600))).rejects.toMatchObject({ code: "invalid_image" });
});

test("a picture that a request's options make too large is rejected before it is decoded", async () => {
  await using inputs = await createGoldenInputs("smolvlm", { settings: { imageLimits: wide } });
  const request = about("<image>", [headerOnly(600, 600)]);
  const mmProcessorOptions = { size: { longest_edge: 4_096 } };
  await expect(inputs.inputProcessor.process({ ...request, mmProcessorOptions }, never)).rejects.toMatchObject({
    code: "invalid_argument",
    parameter: "mmProcessorOptions",
    message: expect.stringMatching(/embeddings with the request's options; the engine has room for \d+\.$/),
  });
});

test("a picture rotated by EXIF has the embeddings of the rotated picture", async () => {
  await using inputs = await createGoldenInputs("qwen2-vl", { settings: { imageLimits: wide } });
  const { processor } = inputs.imageInputs!;
  const upright = encodePng(computePicture("photo", 300, 40));
  const turned = await sharp(upright).rotate(90).withMetadata({ orientation: 8 }).png().toBuffer();
  const [one, other] = await Promise.all(
    [upright, turned].map((bytes) => inputs.inputProcessor.process(about(processor.imagePlaceholder!, [bytes]), never)),
  );
  expect(other!.images[0]!.tensors).toEqual(one!.images[0]!.tensors);
});

test("a small picture is finished while another request's sixteen large ones are in progress", async () => {
  await using inputs = await createGoldenInputs("llava-default", {
    imageLimits: wide,
    settings: { imageLimits: wide },
  });
  const large = Array.from({ length: 16 }, (_, index) =>
    blankPng({ width: 2_000, height: 1_500 + index, bitDepth: 16, colourType: "rgb" }),
  );
  const done: string[] = [];
  const process = (name: string, pictures: readonly Uint8Array[]): Promise<void> =>
    inputs.inputProcessor.process(about("<image>", pictures), never).then(() => void done.push(name));
  const heavy = process("heavy", large);
  // Decoding starts when all headers have been read, so the sixteen are in the queue by then.
  await expect.poll(() => sharp.counters().process, { interval: 1, timeout: 60_000 }).toBeGreaterThan(0);
  await process("light", [encodePng(computePicture("photo", 20, 20))]);
  await heavy;
  expect(done).toEqual(["light", "heavy"]);
});
