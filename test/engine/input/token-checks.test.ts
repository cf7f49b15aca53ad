import { expect, test } from "vitest";

import type { ImageSource } from "../../../engine/images/image-source.ts";
import { ChatTemplate } from "../../../engine/text/chat-template.ts";
import { createGoldenInputs } from "./golden-inputs.ts";
import { image, request } from "./requests.ts";

const never = new AbortController().signal;

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

/** Writes `word` for the pictures of users, and nothing for those of others. */
const templateWriting = (word: string): ChatTemplate =>
  new ChatTemplate(
    `{% for m in messages %}{% for p in m.content %}{{ p.text if p.type == 'text' else '${word}' if m.role == 'user' }}{% endfor %}{% endfor %}`,
    {},
  );

test.for([
  [
    "the checkpoint's, if its template writes another token",
    "<picture>",
    "user",
    "invalid_checkpoint",
    /not write <image>.*image_token_id/,
  ],
  [
    "the client's, if the template writes it for users",
    "<image>",
    "tool",
    "invalid_argument",
    /^The prompt has 0 image placeh/,
  ],
] as const)(
  "a conversation without the placeholder of its picture is a fault of %s",
  async ([, word, role, code, message]) => {
    await using inputs = await createGoldenInputs("llava-default", { chatTemplate: templateWriting(word) });
    const content = [
      { type: "image", reference: "data:," },
      { type: "text", text: "What is it?" },
    ] as const;
    const conversation = { kind: "chat", messages: [{ role, content }], addGenerationPrompt: true } as const;
    await expect(inputs.inputProcessor.process(request(conversation), never)).rejects.toMatchObject({
      code,
      message: expect.stringMatching(message),
    });
  },
);

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
