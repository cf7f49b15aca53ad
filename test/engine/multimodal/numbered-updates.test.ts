import { expect, test } from "vitest";

import { numberedUpdates } from "../../../engine/multimodal/numbered-updates.ts";
import type { ResolvedPromptUpdate } from "../../../engine/multimodal/resolved-prompt-update.ts";

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
