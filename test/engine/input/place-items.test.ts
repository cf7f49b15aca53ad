import { expect, test } from "vitest";

import type { Prompt } from "../../../engine/contract/generation-request.ts";
import type { MultiModalProcessor } from "../../../engine/multimodal/multimodal-processor.ts";
import { pictureReference } from "../../support/checkpoints/goldens.ts";
import { createGoldenInputs } from "./golden-inputs.ts";
import { definitionWith } from "./own-processor.ts";
import { image, request, userSays } from "./requests.ts";

const never = new AbortController().signal;

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

/** With a text target whose tokens alone differ from those inside of the template's text. */
const afterText = (text: string, fields: Partial<MultiModalProcessor>) =>
  definitionWith(() => ({
    ...fields,
    promptUpdates: () => [{ mode: "insertion", target: text, content: Array.from({ length: 16 }, () => 2) }],
  }));

test("without placeholders, the text of conversations and parts is searched for a target", async () => {
  const definition = afterText("hat is i", { imagePlaceholder: null, imagePlaceholderTokenIds: [] });
  await using inputs = await createGoldenInputs("llava-default", { definition });
  const { tokenizer } = inputs.options;
  const picture = image(await pictureReference("drawing.png"));
  const text = { type: "text", text: "What is it?" } as const;
  const prompts: readonly Prompt[] = [
    { kind: "chat", messages: [{ role: "user", content: [picture, text] }], addGenerationPrompt: true },
    { kind: "parts", parts: [picture, text], addSpecialTokens: false },
    { kind: "text", text: text.text, images: [picture], addSpecialTokens: false },
  ];
  for (const prompt of prompts) {
    const { promptTokenIds, images } = await inputs.inputProcessor.process(request(prompt), never);
    const { offset } = images[0]!.placeholder;
    expect(tokenizer.decode(promptTokenIds.slice(0, offset))).toMatch(/What is i$/);
    expect(tokenizer.decode(promptTokenIds.slice(offset + 16))).toMatch(/^t\?/);
  }
});

test("with placeholders, it is not, and the error says so", async () => {
  await using inputs = await createGoldenInputs("llava-default", { definition: afterText("hat is i", {}) });
  const picture = await pictureReference("drawing.png");
  await expect(inputs.inputProcessor.process(userSays("What is it?", picture), never)).rejects.toMatchObject({
    code: "invalid_argument",
    message: expect.stringMatching(
      /^The model's promptUpdates leave 1 image placeholders .* Conversations and parts are searched for the tokens/,
    ),
  });
});
