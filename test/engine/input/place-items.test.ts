import { expect, test } from "vitest";

import { defaultCacheConfig } from "../../../engine/contract/default-limits.ts";
import type { Prompt } from "../../../engine/contract/generation-request.ts";
import { createLargestImage } from "../../../engine/input/dummy-images.ts";
import { numberedUpdates } from "../../../engine/input/place-items.ts";
import { MultiModalCaches } from "../../../engine/multimodal/caches/multimodal-caches.ts";
import type { MultiModalProcessor } from "../../../engine/multimodal/multimodal-processor.ts";
import { selectTokenIds } from "../../../engine/multimodal/prompt-update.ts";
import type { ResolvedPromptUpdate } from "../../../engine/multimodal/resolved-prompt-update.ts";
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

const imageTokenId = 2;
const features = Array.from({ length: 16 }, () => imageTokenId);

test.for<[string, number]>([
  // As JavaScript passes on what `tokenId` returns for a text without a token.
  ["null", null as unknown as number],
  ["NaN", Number.NaN],
  ["7.5", 7.5],
  ["-5", -5],
  ["99999", 99_999],
])("the token id %s in a content or number is rejected, also before the first request", async ([shown, tokenId]) => {
  const full = [...features, tokenId];
  const contents = definitionWith(() => ({
    promptUpdates: () => [
      { mode: "replacement", target: [imageTokenId], content: { full, isEmbed: selectTokenIds(imageTokenId) } },
    ],
  }));
  const numbers = definitionWith(() => ({ numberTokens: (index) => (index === 0 ? [3] : [3, tokenId]) }));
  const picture = await pictureReference("photo.png");
  const rejection = (member: string) => ({
    code: "internal",
    message: `The model's ${member} puts the token id ${shown} into prompts, which is outside the vocabulary, whose size is 331.`,
  });

  await using ofContents = await createGoldenInputs("llava-default", { definition: contents });
  const both = userSays("What is it?", picture, picture);
  await expect(ofContents.inputProcessor.process(both, never)).rejects.toMatchObject(rejection("promptUpdates"));
  const start = createLargestImage(ofContents.imageInputs!, { ...ofContents.options, expected: undefined }, never);
  await expect(start).rejects.toMatchObject(rejection("promptUpdates"));

  await using ofNumbers = await createGoldenInputs("llava-default", { definition: numbers });
  await expect(ofNumbers.inputProcessor.process(both, never)).rejects.toMatchObject(rejection("numberTokens"));
  const one = await ofNumbers.inputProcessor.process(userSays("What is it?", picture), never);
  expect(one.images).toHaveLength(1);
});

test("a target by the place of an image in the prompt is the same, whatever a cache has", async () => {
  const [first, second, third] = [50, 51, 52];
  const definition = definitionWith(() => ({
    imagePlaceholder: null,
    imagePlaceholderTokenIds: [],
    promptUpdates: () => [{ mode: "replacement", target: (index) => [first + index], content: features }],
  }));
  const caches = new MultiModalCaches(defaultCacheConfig, null);
  const itemCaches = { processor: caches.processor, source: caches.source, video: caches.video };
  await using inputs = await createGoldenInputs("llava-default", { definition, caches: itemCaches });
  const [a, b, c] = [
    await pictureReference("photo.png"),
    await pictureReference("drawing.png"),
    await pictureReference("small.png"),
  ];
  const process = async (references: readonly string[], tokenIds = [7, second, 8, first, 9]) => {
    const images = references.map(image);
    const processed = await inputs.inputProcessor.process(request({ kind: "tokens", tokenIds, images }), never);
    return processed.images.map(({ mmHash, placeholder: { offset } }) => ({ mmHash, offset }));
  };
  // The second of the images comes first in the prompt.
  const [ofB, ofA] = await process([a, b]);
  const [hashA, hashB] = [ofA!.mmHash, ofB!.mmHash];
  expect([ofB!.offset, ofA!.offset]).toEqual([1, 18]);
  const hashes = async (...given: Parameters<typeof process>) => (await process(...given)).map(({ mmHash }) => mmHash);
  expect(await hashes([b, a])).toEqual([hashA, hashB]);
  expect(await hashes([a, a])).toEqual([hashA, hashA]);
  expect(await hashes([b], [7, first])).toEqual([hashB]);
  // The third is missing in the cache, where it is the only one.
  expect((await hashes([b, a, c], [first, second, third])).slice(0, 2)).toEqual([hashB, hashA]);
  await caches.close();
});

test("a target by place has to be a function without images too", async () => {
  const definition = definitionWith(() => ({
    promptUpdates: (items) =>
      items.length === 0 ? [] : [{ mode: "replacement", target: () => [imageTokenId], content: features }],
  }));
  await using inputs = await createGoldenInputs("llava-default", { definition });
  const asked = inputs.inputProcessor.process(userSays("What is it?", await pictureReference("photo.png")), never);
  await expect(asked).rejects.toMatchObject({
    code: "internal",
    message: "The model's promptUpdates has a function as the target of rule 0 for an image, and none without images.",
  });
});

test.for<[string, number]>([
  ["before it is loaded", 20],
  ["after all are loaded", 35],
])("an image keeps its number if truncation removes the one before it %s", async ([, truncatePromptTokens]) => {
  const definition = definitionWith(() => ({ numberTokens: (index) => [100 + index] }));
  await using inputs = await createGoldenInputs("llava-default", { definition });
  const images = [image(await pictureReference("photo.png")), image(await pictureReference("drawing.png"))];
  // Loaded, the prompt has 36 tokens; without the numbers, which only images have, 34.
  const prompt = { kind: "tokens", tokenIds: [imageTokenId, 50, imageTokenId, 51], images } as const;
  const processed = await inputs.inputProcessor.process({ ...request(prompt), truncatePromptTokens }, never);
  expect(processed.promptTokenIds).toEqual([50, 101, ...features, 51]);
  expect(processed.numOmittedImages).toBe(1);
});

const update: ResolvedPromptUpdate = {
  mode: "replacement",
  target: { kind: "tokens", tokenIds: [9] },
  content: { full: [1, 9, 2], isEmbed: [false, true, false] },
};

test("a number comes before the content and has no embeddings, and the shared update stays as it is", () => {
  const all = { ...update, content: { full: [9, 9], isEmbed: null } };
  expect(numberedUpdates([update, all], [7, 8])).toEqual([
    { ...update, content: { full: [7, 8, 1, 9, 2], isEmbed: [false, false, false, true, false] } },
    { ...update, content: { full: [7, 8, 9, 9], isEmbed: [false, false, true, true] } },
  ]);
  expect(update.content.full).toEqual([1, 9, 2]);
});

test("updates without a number are those of the item", () => {
  const updates = [update];
  expect(numberedUpdates(updates, [])).toBe(updates);
});
