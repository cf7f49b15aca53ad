import * as fc from "fast-check";
import { expect, test } from "vitest";

import { findPlaceholders } from "../../../engine/multimodal/find-placeholders.ts";
import type { ResolvedPromptUpdate } from "../../../engine/multimodal/resolved-prompt-update.ts";

function content(...full: readonly number[]): ResolvedPromptUpdate {
  return { mode: "replacement", target: { kind: "tokens", tokenIds: [0] }, content: { full, isEmbed: null } };
}

function offsets(tokenIds: readonly number[], ...modalities: readonly (readonly ResolvedPromptUpdate[][])[]) {
  return findPlaceholders(tokenIds, modalities).map((ranges) => ranges.map((range) => range?.offset ?? null));
}

test("items are found in order, and equal neighbours are separated by their length", () => {
  expect(offsets([5, 9, 9, 9, 9, 6], [[content(9, 9)], [content(9, 9)]])).toEqual([[1, 3]]);
  expect(offsets([5, 9, 9, 6, 9, 9], [[content(9, 9)], [content(9, 9)]])).toEqual([[1, 4]]);
});

test("after a missing item, only other modalities are searched", () => {
  expect(offsets([1, 2, 3], [[content(9)], [content(2)]], [[content(3)]])).toEqual([[null, null], [2]]);
});

test("modalities may alternate, and the first one wins if two begin at one token", () => {
  expect(offsets([8, 7, 8, 7], [[content(7)], [content(7)]], [[content(8)], [content(8)]])).toEqual([
    [1, 3],
    [0, 2],
  ]);
  expect(offsets([9, 9], [[content(9)]], [[content(9)]])).toEqual([[0], [1]]);
});

test("any alternative of an item matches, and its mask is returned", () => {
  const masked = { ...content(4, 5), content: { full: [4, 5], isEmbed: [true, false] } };
  expect(findPlaceholders([1, 4, 5], [[[content(9), masked]]])).toEqual([
    [{ offset: 1, length: 2, isEmbed: [true, false] }],
  ]);
});

test("content without tokens, or longer than the prompt, is not found", () => {
  expect(offsets([1], [[content()]], [[content(1, 1)]])).toEqual([[null], [null]]);
});

test("the result equals a search at every position", () => {
  const token = fc.integer({ min: 1, max: 3 });
  const items = fc.array(
    fc.array(
      fc.array(token, { minLength: 1, maxLength: 3 }).map((full) => content(...full)),
      { minLength: 1, maxLength: 2 },
    ),
    { maxLength: 3 },
  );
  const property = fc.property(
    fc.array(token, { maxLength: 40 }),
    fc.array(items, { maxLength: 2 }),
    (prompt, given) => {
      expect(offsets(prompt, ...given)).toEqual(offsetsByPosition(prompt, given));
    },
  );
  fc.assert(property, { numRuns: 2000 });
});

function offsetsByPosition(prompt: readonly number[], modalities: readonly (readonly ResolvedPromptUpdate[][])[]) {
  const found = modalities.map((items) => items.map((): number | null => null));
  const next = modalities.map(() => 0);
  for (let position = 0; position < prompt.length;) {
    const hit = modalities.flatMap((items, modality) =>
      (items[next[modality]!] ?? []).flatMap(({ content: { full } }) =>
        full.every((tokenId, index) => prompt[position + index] === tokenId) ? [{ modality, length: full.length }] : [],
      ),
    )[0];
    if (hit === undefined) {
      position += 1;
      continue;
    }
    found[hit.modality]![next[hit.modality]!] = position;
    next[hit.modality]! += 1;
    position += hit.length;
  }
  return found;
}

test("prompts built to be slow are searched only once", () => {
  const prompt = Array.from({ length: 300_000 }, () => 1);
  const nearly = content(...Array.from({ length: 20_000 }, () => 1), 2);
  expect(offsets(prompt, [[nearly]], [[content(999, 0)]], [[content(1, 2)]])).toEqual([[null], [null], [null]]);
});
