import * as fc from "fast-check";
import { expect, test } from "vitest";

import { applyPromptUpdatesToText } from "../../engine/multimodal/prompt-text-fallback.ts";
import { applyPromptUpdates } from "../../engine/multimodal/prompt-update.ts";
import { loadFixtureTokenizer } from "../text/fixture-tokenizer.ts";
import type { PromptText } from "../../engine/multimodal/prompt-text-fallback.ts";
import type { PromptUpdate } from "../../engine/multimodal/prompt-update.ts";

const tokenizer = await loadFixtureTokenizer("qwen2");
const imageId = tokenizer.tokenId("<image>") as number;
const promptText: PromptText = {
  decode: (tokenIds) => tokenizer.decode(tokenIds),
  encode: async (text) => (await tokenizer.encode(text, { addSpecialTokens: false })) as number[],
};

function imageUpdate(length: number): PromptUpdate {
  return {
    kind: "replacement",
    target: [imageId],
    content: { full: Array.from({ length }, () => imageId), isEmbed: null },
  };
}

test("a target whose characters have tokens of their own is found by its text", async () => {
  const literal = [{ start: 6, end: 13 }];
  const tokenIds = await tokenizer.encode("What: <image>!", { addSpecialTokens: false, literal });
  expect(tokenIds).not.toContain(imageId);
  const { tokenIds: updated, placeholders } = await applyPromptUpdatesToText(
    tokenIds ?? [],
    [imageUpdate(3)],
    promptText,
  );
  expect(placeholders).toEqual([{ offset: updated.indexOf(imageId), length: 3, isEmbed: null }]);
  expect(tokenizer.decode(updated)).toBe("What: <image><image><image>!");
});

test("an item whose target is nowhere in the text has no placeholder", async () => {
  const tokenIds = (await promptText.encode("nothing here")) as number[];
  expect(await applyPromptUpdatesToText(tokenIds, [imageUpdate(3)], promptText)).toEqual({
    tokenIds,
    placeholders: [null],
  });
});

test("on prompts whose placeholders are tokens, text and tokens give the same", async () => {
  const pieces = fc.array(fc.constantFrom("<image>", " a", " red", "circle", "\n", "😀"), { maxLength: 12 });
  const lengths = fc.array(fc.integer({ min: 1, max: 4 }), { maxLength: 4 });
  const property = fc.asyncProperty(pieces, lengths, async (words, sizes) => {
    const tokenIds = await promptText.encode(words.join(""));
    const updates = sizes.map(imageUpdate);
    const byTokens = applyPromptUpdates(tokenIds, updates);
    expect(await applyPromptUpdatesToText(tokenIds, updates, promptText)).toEqual(byTokens);
  });
  await fc.assert(property, { numRuns: 200 });
});
