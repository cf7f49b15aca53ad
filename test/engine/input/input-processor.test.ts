import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";

import type { ChatMessage, GenerationRequest, ImagePart, Prompt } from "../../../engine/contract/generation-request.ts";
import { createSamplingParams } from "../../../engine/contract/sampling-params.ts";
import { createDataUrlImageSource } from "../../../engine/images/data-url-image-source.ts";
import type { ImageSource } from "../../../engine/images/image-source.ts";
import type { ItemTensor } from "../../../engine/multimodal/processed-item.ts";
import { loadGoldens, pictureReference } from "../../support/checkpoints/goldens.ts";
import { createGoldenInputs, imageLimits } from "./golden-inputs.ts";

const never = new AbortController().signal;

function request(prompt: Prompt): GenerationRequest {
  return { requestId: "request", prompt, samplingParams: createSamplingParams() };
}

function chat(...messages: ChatMessage[]): GenerationRequest {
  return request({ kind: "chat", messages, addGenerationPrompt: true });
}

function image(reference: string): ImagePart {
  return { type: "image", reference };
}

function userSays(text: string, ...references: string[]): GenerationRequest {
  return chat({ role: "user", content: [...references.map(image), { type: "text", text }] });
}

test("ids, pixel values and placeholders equal those of transformers, with 0, 1 and 3 images", async () => {
  await using inputs = await createGoldenInputs("llava-default");
  const { cases } = await loadGoldens("llava-default");
  expect(cases.map(({ pictures }) => pictures.length)).toEqual([0, 1, 3]);
  for (const golden of cases) {
    const references = await Promise.all(golden.pictures.map(pictureReference));
    const messages = golden.messages.map(({ role, content }) => ({
      role,
      content: content.map((part) => (part.type === "image" ? image(references.shift() as string) : part)),
    }));
    const { promptTokenIds, images } = await inputs.inputProcessor.process(chat(...messages), never);
    expect(promptTokenIds).toEqual(golden.promptTokenIds);
    expect(images).toHaveLength(golden.pictures.length);
    for (const [index, { tensors, placeholder }] of images.entries()) {
      expect([...tensors.keys()]).toEqual(["pixel_values"]);
      const { shape, data: pixelValues } = tensors.get("pixel_values") as ItemTensor<"float32">;
      expect(shape).toEqual([3, 32, 32]);
      const expected = golden.pixelValues?.subarray(index * pixelValues.length, (index + 1) * pixelValues.length);
      const largest = Math.max(...pixelValues.map((value, at) => Math.abs(value - (expected?.[at] ?? Number.NaN))));
      // 1/255 of brightness, in units of CLIP's smallest deviation.
      expect(largest).toBeLessThanOrEqual(1 / 255 / 0.26 + 1e-6);
      const { offset, length } = placeholder;
      expect(new Set(promptTokenIds.slice(offset, offset + length))).toEqual(new Set([2]));
    }
  }
});

test("equal pictures have equal hashes, different ones do not", async () => {
  await using inputs = await createGoldenInputs("llava-default");
  const [drawing, photo] = [await pictureReference("drawing.png"), await pictureReference("photo.png")];
  const { images } = await inputs.inputProcessor.process(userSays("?", drawing, photo, drawing), never);
  expect(images[0]!.mmHash).toBe(images[2]!.mmHash);
  expect(images[0]!.mmHash).not.toBe(images[1]!.mmHash);
});

test("a placeholder written in a message is text, with or without a picture", async () => {
  await using inputs = await createGoldenInputs("llava-default");
  const picture = await pictureReference("drawing.png");
  const text = "What does <image> mean in <image> HTML? \uE000";
  const { tokenizer } = inputs.options;
  for (const references of [[], [picture]]) {
    const { promptTokenIds, images } = await inputs.inputProcessor.process(userSays(text, ...references), never);
    const numImageTokens = images.reduce((sum, { placeholder }) => sum + placeholder.length, 0);
    expect(images).toHaveLength(references.length);
    expect(promptTokenIds.filter((tokenId) => tokenId === 2)).toHaveLength(numImageTokens);
    expect(tokenizer.decode(promptTokenIds)).toContain(text);
  }
});

test("a text prompt and a token prompt take images at their placeholders", async () => {
  await using inputs = await createGoldenInputs("llava-default");
  const picture = await pictureReference("drawing.png");
  const { tokenizer } = inputs.options;
  const text = "One: <image> two: <image>.";
  const images = [image(picture), image(picture)];
  const fromText = await inputs.inputProcessor.process(
    request({ kind: "text", text, addSpecialTokens: false, images }),
    never,
  );
  expect(fromText.images.map(({ placeholder }) => placeholder.length)).toEqual([16, 16]);
  const tokenIds = (await tokenizer.encode(text, { addSpecialTokens: false })) as number[];
  const fromTokens = await inputs.inputProcessor.process(request({ kind: "tokens", tokenIds, images }), never);
  expect(fromTokens.promptTokenIds).toEqual(fromText.promptTokenIds);
  // The placeholder's characters instead of its token.
  const literal = [{ start: 5, end: 12 }];
  const spelled = (await tokenizer.encode(text, { addSpecialTokens: false, literal })) as number[];
  const fromSpelled = await inputs.inputProcessor.process(
    request({ kind: "tokens", tokenIds: spelled, images }),
    never,
  );
  expect(fromSpelled.promptTokenIds).toEqual(fromText.promptTokenIds);
});

test.for([
  ["no token at all", { kind: "text", text: "", addSpecialTokens: false }, "invalid_argument", /empty/],
  [
    "a token out of the vocabulary",
    { kind: "tokens", tokenIds: [1, 336] },
    "invalid_argument",
    /336 is outside the vocabulary, whose size is \d+/,
  ],
  ["a negative token", { kind: "tokens", tokenIds: [-1] }, "invalid_argument", /-1 is out/],
  ["a fraction for a token", { kind: "tokens", tokenIds: [1.5] }, "invalid_argument", /1.5 is out/],
  [
    "a placeholder without its image",
    { kind: "text", text: "<image> and <image>", addSpecialTokens: false },
    "invalid_argument",
    /2 image placeholders .* 0 images/,
  ],
  [
    "an image without its placeholder",
    { kind: "text", text: "nothing", addSpecialTokens: false, images: [image("data:,")] },
    "invalid_argument",
    /0 image placeholders .* 1 images/,
  ],
  [
    "more images than allowed",
    { kind: "text", text: "<image>", addSpecialTokens: false, images: ["a", "b", "c", "d"].map(image) },
    "too_many_images",
    /4 images; the limit is 3/,
  ],
] as const)("a prompt with %s is rejected", async ([, prompt, code, message]) => {
  await using inputs = await createGoldenInputs("llava-default");
  await expect(inputs.inputProcessor.process(request(prompt), never)).rejects.toMatchObject({
    code,
    message: expect.stringMatching(message),
  });
});

test("a prompt that leaves no room for output is rejected with both numbers, before its image is fetched", async () => {
  const fetched: string[] = [];
  const source: ImageSource = {
    schemes: ["data"],
    fetch: async (reference) => {
      fetched.push(reference);
      throw new Error("fetched");
    },
  };
  await using inputs = await createGoldenInputs("llava-default", { maxModelLen: 50, sources: [source] });
  const { tokenizer, inputProcessor } = { ...inputs.options, ...inputs };
  const words = async (numTokens: number): Promise<number[]> =>
    ((await tokenizer.encode(" the".repeat(60), { addSpecialTokens: false })) as number[]).slice(0, numTokens);
  const tokens = async (numTokens: number) => request({ kind: "tokens", tokenIds: await words(numTokens) });
  await expect(inputProcessor.process(await tokens(49), never)).resolves.toBeDefined();
  await expect(inputProcessor.process(await tokens(50), never)).rejects.toMatchObject({
    code: "prompt_too_long",
    message: expect.stringMatching(/50 tokens.* 50 /),
  });
  // 40 tokens of text and 16 of the image.
  const withImage = request({
    kind: "tokens",
    tokenIds: [2, ...(await words(40))],
    images: [image("data:image/png;base64,")],
  });
  await expect(inputProcessor.process(withImage, never)).rejects.toMatchObject({
    code: "prompt_too_long",
    message: expect.stringContaining("56 tokens"),
  });
  expect(fetched).toEqual([]);
});

test("a prompt of a million characters is rejected without blocking other work", async () => {
  await using inputs = await createGoldenInputs("llava-default");
  await expect(inputs.inputProcessor.process(userSays("long words ".repeat(100_000)), never)).rejects.toMatchObject({
    code: "prompt_too_long",
    message: expect.stringMatching(/more than \d+ tokens/),
  });
});

test("a text-only model rejects images, a checkpoint without a chat template rejects messages", async () => {
  await using textOnly = await createGoldenInputs("llama");
  await expect(textOnly.inputProcessor.process(userSays("?", "data:,"), never)).rejects.toMatchObject({
    code: "invalid_argument",
    message: "This model does not accept images.",
  });
  await using noTemplate = await createGoldenInputs("llama", { chatTemplate: null });
  await expect(noTemplate.inputProcessor.process(userSays("?"), never)).rejects.toMatchObject({
    code: "invalid_argument",
    message: expect.stringContaining("no chat template"),
  });
});

test("when one image fails, the others are cancelled and have ended", async () => {
  const ended: string[] = [];
  // Never answers; its connections end only when they are cancelled.
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const slow: ImageSource = {
    schemes: ["slow"],
    fetch: async (reference, { signal }) => {
      try {
        const response = await fetch(`http://127.0.0.1:${port}/`, { signal });
        return new Uint8Array(await response.arrayBuffer());
      } finally {
        ended.push(reference);
      }
    },
  };
  await using inputs = await createGoldenInputs("llava-default", { sources: [createDataUrlImageSource(), slow] });
  const broken = "data:image/png;base64,A";
  await expect(inputs.inputProcessor.process(userSays("?", "slow:1", broken, "slow:2"), never)).rejects.toMatchObject({
    code: "invalid_image_reference",
    parameter: "prompt.images[1]",
  });
  expect(ended.sort()).toEqual(["slow:1", "slow:2"]);

  const aborting = new AbortController();
  const processing = inputs.inputProcessor.process(userSays("?", "slow:3"), aborting.signal);
  server.once("request", () => aborting.abort());
  await expect(processing).rejects.toMatchObject({ code: "aborted" });
  expect(ended).toContain("slow:3");
  server.closeAllConnections();
  server.close();
});

test("a picture above the byte limit or with an unknown scheme is the caller's error", async () => {
  await using inputs = await createGoldenInputs("llava-default");
  const tooLarge = `data:image/png;base64,${"A".repeat(imageLimits.maxImageBytes * 2)}`;
  await expect(inputs.inputProcessor.process(userSays("?", tooLarge), never)).rejects.toMatchObject({
    code: "image_too_large",
  });
  await expect(inputs.inputProcessor.process(userSays("?", "ftp://host/x"), never)).rejects.toMatchObject({
    code: "invalid_image_reference",
  });
});
