import { expect, test } from "vitest";

import { pictureReference } from "../../support/checkpoints/goldens.ts";
import { createGoldenInputs } from "./golden-inputs.ts";
import { userSays } from "./requests.ts";

const never = new AbortController().signal;

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
