/** Requests in the form of dots.ocr's own client, which vLLM answers. */
import { expect, test } from "vitest";

import type { ChatMessage, ContentPart } from "../../../../engine/contract/generation-request.ts";
import { createSamplingParams } from "../../../../engine/contract/sampling-params.ts";
import { hubCases, hubPictureReference } from "../../../support/checkpoints/hub-checkpoints.ts";
import { createHubInputs, type GoldenInputs } from "../../input/golden-inputs.ts";

const never = new AbortController().signal;
const spelling = "<|img|><|imgpad|><|endofimg|>";

async function promptOf(inputs: GoldenInputs, messages: readonly ChatMessage[]) {
  const prompt = { kind: "chat", messages, addGenerationPrompt: true } as const;
  return inputs.inputProcessor.process({ prompt, samplingParams: createSamplingParams() }, never);
}

/** The pictures first, and then a text with the tokens of each. */
async function asWrittenByClient(
  content: readonly { readonly type: string; readonly text?: string }[],
  names: string[],
) {
  const pictures = content.filter(({ type }) => type === "image");
  const images = pictures.map(async () => {
    const reference = await hubPictureReference(names.shift()!);
    return { type: "image", reference } as const;
  });
  const text = content.map((part) => part.text ?? spelling).join("");
  return [...(await Promise.all(images)), { type: "text", text }] satisfies ContentPart[];
}

test("pictures whose tokens a client writes into the text are in the prompt once", async () => {
  await using inputs = await createHubInputs("dots-ocr");
  for (const { name, messages, pictures, promptTokenIds } of hubCases("dots-ocr")) {
    const names = [...pictures];
    const written: ChatMessage[] = [];
    for (const { role, content } of messages) written.push({ role, content: await asWrittenByClient(content, names) });
    const prompt = await promptOf(inputs, written);
    expect({ name, ids: prompt.promptTokenIds }).toEqual({ name, ids: promptTokenIds });
    expect(prompt.images).toHaveLength(pictures.length);
    // Its decoder counts tokens, so there are no positions beside them.
    expect(prompt.positions).toBeUndefined();
  }
});

test("the tokens of a picture are text in a message without one", async () => {
  await using inputs = await createHubInputs("dots-ocr");
  const { tokenizer } = inputs.options;
  const { promptTokenIds, images } = await promptOf(inputs, [{ role: "user", content: `${spelling}a` }]);
  expect(images).toEqual([]);
  expect(promptTokenIds).not.toContain(inputs.imageInputs!.imageTokenId);
  expect(tokenizer.decode(promptTokenIds)).toBe(`<|user|>${spelling}a<|endofuser|><|assistant|>`);
});
