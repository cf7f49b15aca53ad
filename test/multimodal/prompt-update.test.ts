import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { applyPromptUpdates, countMatches } from "../../engine/multimodal/prompt-update.ts";
import type { PromptUpdate } from "../../engine/multimodal/prompt-update.ts";

function replacement(target: number[], full: number[], isEmbed: boolean[] | null = null): PromptUpdate {
  return { kind: "replacement", target, content: { full, isEmbed } };
}

describe("replacements", () => {
  test("items that share a target take its occurrences in order", () => {
    const updates = [replacement([9], [1, 1]), replacement([9], [2])];
    expect(applyPromptUpdates([5, 9, 6, 9, 9], updates)).toEqual({
      tokenIds: [5, 1, 1, 6, 2, 9],
      placeholders: [
        { offset: 1, length: 2, isEmbed: null },
        { offset: 4, length: 1, isEmbed: null },
      ],
    });
  });

  test("items with targets of their own may stand in any order", () => {
    const updates = [replacement([7, 7], [1]), replacement([8], [2])];
    const { tokenIds, placeholders } = applyPromptUpdates([8, 0, 7, 7], updates);
    expect(tokenIds).toEqual([2, 0, 1]);
    expect(placeholders.map((range) => range?.offset)).toEqual([2, 0]);
  });

  test("content that holds the target again is not replaced again", () => {
    const updates = [replacement([9], [9, 9, 9]), replacement([9], [9, 9])];
    const { tokenIds, placeholders } = applyPromptUpdates([9, 9], updates);
    expect(tokenIds).toEqual([9, 9, 9, 9, 9]);
    expect(placeholders.map((range) => [range?.offset, range?.length])).toEqual([
      [0, 3],
      [3, 2],
    ]);
  });

  test("an item without a target in the prompt has no placeholder", () => {
    expect(applyPromptUpdates([1, 2], [replacement([9], [3]), replacement([2], [4])])).toEqual({
      tokenIds: [1, 4],
      placeholders: [null, { offset: 1, length: 1, isEmbed: null }],
    });
  });

  test("an empty target matches nothing, and no updates leave the prompt as it is", () => {
    expect(applyPromptUpdates([1, 2], [replacement([], [3])])).toEqual({ tokenIds: [1, 2], placeholders: [null] });
    expect(applyPromptUpdates([1, 2], [])).toEqual({ tokenIds: [1, 2], placeholders: [] });
  });

  test("the mask of embedded tokens goes along", () => {
    const [placeholder] = applyPromptUpdates([9], [replacement([9], [1, 1, 2], [true, true, false])]).placeholders;
    expect(placeholder).toEqual({ offset: 0, length: 3, isEmbed: [true, true, false] });
  });
});

test("every placeholder range points at its item's content, and what is left is the prompt without the targets", () => {
  const token = fc.integer({ min: 0, max: 3 });
  const update = fc.record({
    target: fc.array(token, { minLength: 1, maxLength: 2 }),
    // Contents are told apart from the prompt, and from each other, by their tokens.
    length: fc.integer({ min: 1, max: 5 }),
  });
  const property = fc.property(
    fc.array(token, { maxLength: 40 }),
    fc.array(update, { maxLength: 6 }),
    (prompt, rules) => {
      const updates = rules.map(({ target, length }, item) =>
        replacement(
          target,
          Array.from({ length }, () => 100 + item),
        ),
      );
      const { tokenIds, placeholders } = applyPromptUpdates(prompt, updates);
      let restored: number[] = [...tokenIds];
      for (const [item, range] of [...placeholders.entries()].reverse().sort(byOffsetDescending)) {
        if (range === null) continue;
        expect(tokenIds.slice(range.offset, range.offset + range.length)).toEqual(updates[item].content.full);
        restored.splice(range.offset, range.length, ...updates[item].target);
      }
      expect(restored).toEqual(prompt);
    },
  );
  fc.assert(property, { numRuns: 2000 });
});

function byOffsetDescending(
  [, left]: [number, { readonly offset: number } | null],
  [, right]: [number, { readonly offset: number } | null],
): number {
  return (right?.offset ?? 0) - (left?.offset ?? 0);
}

test("occurrences are counted without overlap", () => {
  expect(countMatches([1, 1, 1, 2, 1, 1], [1, 1])).toBe(2);
  expect(countMatches([], [1])).toBe(0);
  expect(countMatches([1, 2], [])).toBe(0);
});

test("thousands of items and targets are placed in one pass each", () => {
  const prompt = Array.from({ length: 60_000 }, (_, index) => index % 3);
  const updates = Array.from({ length: 2000 }, () => replacement([0, 1, 2], [7]));
  const { placeholders } = applyPromptUpdates(prompt, updates);
  expect(placeholders.every((range, item) => range?.offset === item)).toBe(true);
});
