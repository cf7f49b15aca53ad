import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { applyPromptUpdates, applyPromptUpdatesToText } from "../../../engine/multimodal/apply-prompt-updates.ts";
import type { PlaceholderRange } from "../../../engine/multimodal/placeholder.ts";
import type { PromptText } from "../../../engine/multimodal/prompt-text.ts";
import type { PromptTarget, ResolvedPromptUpdate } from "../../../engine/multimodal/resolved-prompt-update.ts";
import { countOccurrences } from "../../../engine/multimodal/sequence-search.ts";
import { loadFixtureTokenizer } from "../text/fixture-tokenizer.ts";

const tokenizer = await loadFixtureTokenizer("qwen2");
const imageId = tokenizer.tokenId("<image>") as number;
const promptText: PromptText = {
  decode: (tokenIds) => tokenizer.decode(tokenIds),
  encode: async (text) => (await tokenizer.encode(text, { addSpecialTokens: false })) as number[],
};

type Mode = ResolvedPromptUpdate["mode"];

function update(mode: Mode, target: readonly number[] | PromptTarget, full: readonly number[]): ResolvedPromptUpdate {
  const isTokens = Array.isArray(target);
  return {
    mode,
    target: isTokens ? { kind: "tokens", tokenIds: target } : (target as PromptTarget),
    content: { full, isEmbed: null },
  };
}

const replace = (target: readonly number[] | PromptTarget, full: readonly number[]) => [
  update("replacement", target, full),
];
const insert = (target: readonly number[] | PromptTarget, full: readonly number[]) => [
  update("insertion", target, full),
];
const start: PromptTarget = { kind: "start" };
const end: PromptTarget = { kind: "end" };

async function applied(prompt: readonly number[], ...items: readonly (readonly ResolvedPromptUpdate[])[]) {
  const { tokenIds, placeholders } = await applyPromptUpdates(prompt, items, promptText);
  return [tokenIds, placeholders.map((range) => range?.offset ?? null)];
}

test("tokens that join at the ends of a content become one, and embeddings keep their places", async () => {
  // Runs of line breaks: 101 is one, 102 are two, and so on.
  const joinTokens = (left: number, right: number): number | null =>
    left > 100 && right > 100 ? left + right - 100 : null;
  const picture: ResolvedPromptUpdate = {
    ...update("replacement", [9], [102, 8, 1, 1, 102]),
    content: { full: [102, 8, 1, 1, 102], isEmbed: [false, false, true, true, false] },
  };
  const prompt = [5, 101, 9, 9, 101, 6, 9];
  const { tokenIds, placeholders } = await applyPromptUpdates(
    prompt,
    [[picture], [picture], [picture]],
    promptText,
    joinTokens,
  );
  expect(tokenIds).toEqual([5, 103, 8, 1, 1, 104, 8, 1, 1, 103, 6, 102, 8, 1, 1, 102]);
  expect(placeholders).toEqual([
    { offset: 2, length: 4, isEmbed: [false, true, true, false] },
    { offset: 6, length: 4, isEmbed: [false, true, true, false] },
    { offset: 11, length: 5, isEmbed: [false, false, true, true, false] },
  ]);
});

describe("replacements", () => {
  test("items with the same target take its occurrences in order, and other occurrences stay", async () => {
    expect(await applied([5, 9, 6, 9, 9], replace([9], [1, 1]), replace([9], [2]))).toEqual([
      [5, 1, 1, 6, 2, 9],
      [1, 4],
    ]);
  });

  test("items with different targets may occur in any order", async () => {
    expect(await applied([8, 0, 7, 7], replace([7, 7], [1]), replace([8], [2]))).toEqual([
      [2, 0, 1],
      [2, 0],
    ]);
  });

  test("content that contains the target again is not replaced again", async () => {
    expect(await applied([9, 9], replace([9], [9, 9, 9]), replace([9], [9, 9]))).toEqual([
      [9, 9, 9, 9, 9],
      [0, 3],
    ]);
  });

  test("an item without a target in the prompt has no placeholder", async () => {
    expect(await applied([1, 2], replace([9], [3]), replace([2], [4]))).toEqual([
      [1, 4],
      [null, 1],
    ]);
  });

  test("if two modalities share a target, the first takes the first occurrences", async () => {
    expect(await applied([9, 9, 9], replace([9], [1]), replace([9], [2]), replace([9], [3]))).toEqual([
      [1, 2, 3],
      [0, 1, 2],
    ]);
  });

  test("an empty target matches nothing, and no items leave the prompt unchanged", async () => {
    expect(await applied([1, 2], replace([], [3]))).toEqual([[1, 2], [null]]);
    expect(await applied([1, 2])).toEqual([[1, 2], []]);
  });

  test("the first alternative whose target is in the prompt is used", async () => {
    const alternatives = [
      update("replacement", [7], [1]),
      update("insertion", [8], [2]),
      update("insertion", end, [3]),
    ];
    expect(await applied([5, 8, 6], alternatives)).toEqual([[5, 8, 2, 6], [2]]);
    expect(await applied([8, 7], alternatives)).toEqual([[8, 1], [1]]);
    expect(await applied([5], alternatives)).toEqual([[5, 3], [1]]);
    expect(await applied([7, 8], alternatives, alternatives)).toEqual([
      [1, 8, 2],
      [0, 2],
    ]);
  });

  test("the mask of embedded tokens is kept", async () => {
    const isEmbed = [true, true, false];
    const items = [[{ ...update("replacement", [9], [1, 1, 2]), content: { full: [1, 1, 2], isEmbed } }]];
    const { placeholders } = await applyPromptUpdates([9], items, promptText);
    expect(placeholders).toEqual([{ offset: 0, length: 3, isEmbed }]);
  });
});

describe("insertions", () => {
  test("with one target all go after its first occurrence, in order", async () => {
    expect(await applied([5, 9, 6, 9], insert([9], [1]), insert([9], [2, 2]))).toEqual([
      [5, 9, 1, 2, 2, 6, 9],
      [2, 3],
    ]);
  });

  test("into a run of equal tokens keep their positions", async () => {
    expect(await applied([1, 7, 9, 9], insert([9], [9, 9]))).toEqual([[1, 7, 9, 9, 9, 9], [3]]);
  });

  test("with overlapping targets repeat nothing of the prompt", async () => {
    expect(await applied([1, 2, 3, 4], insert([1, 2, 3], [8]), insert([2], [9]))).toEqual([
      [1, 2, 9, 3, 8, 4],
      [4, 2],
    ]);
  });

  test("mix with replacements in any order", async () => {
    const items = [replace([9], [1]), insert([4], [2])];
    expect(await applied([4, 6, 9], ...items)).toEqual([
      [4, 2, 6, 1],
      [3, 1],
    ]);
    expect(await applied([9, 6, 4], ...items)).toEqual([
      [1, 6, 4, 2],
      [0, 3],
    ]);
  });
});

describe("places that are not tokens", () => {
  test("start, end and prefix work, also in an empty prompt; a prefix only where the prompt starts with it", async () => {
    const prefix = (tokenIds: readonly number[]): PromptTarget => ({
      kind: "prefix",
      sequence: { kind: "tokens", tokenIds },
    });
    expect(await applied([4, 6], insert(start, [1]))).toEqual([[1, 4, 6], [0]]);
    expect(await applied([4, 6], replace(end, [1]))).toEqual([[4, 6, 1], [2]]);
    expect(await applied([4, 6], insert(prefix([4]), [1]))).toEqual([[4, 1, 6], [1]]);
    expect(await applied([4, 6], insert(prefix([6]), [1]))).toEqual([[4, 6], [null]]);
    expect(await applied([], insert(start, [1]), insert(end, [2]), insert(prefix([4]), [3]))).toEqual([
      [1, 2],
      [0, 1, null],
    ]);
  });

  test("an item at the end takes nothing from items that still wait", async () => {
    expect(await applied([9, 9], replace([9], [1]), replace([9], [2]), replace(end, [5]))).toEqual([
      [1, 2, 5],
      [0, 1, 2],
    ]);
    expect(await applied([9, 9], replace(end, [5]), replace([9], [1]), replace([9], [2]))).toEqual([
      [1, 2, 5],
      [2, 0, 1],
    ]);
  });

  test("an item at the start is placed there whatever else is replaced, and nothing is repeated", async () => {
    expect(await applied([4, 9, 6], replace([9], [1]), insert(start, [5]))).toEqual([
      [5, 4, 1, 6],
      [2, 0],
    ]);
    expect(await applied([9, 6], replace([9], [1]), insert(start, [5]))).toEqual([
      [5, 1, 6],
      [1, 0],
    ]);
  });
});

describe("text", () => {
  const imageUpdate = (length: number): ResolvedPromptUpdate[] =>
    replace(
      [imageId],
      Array.from({ length }, () => imageId),
    );

  test("a target whose characters have their own tokens is found by its text", async () => {
    const literal = [{ start: 6, end: 13 }];
    const tokenIds = (await tokenizer.encode("What: <image>!", { addSpecialTokens: false, literal })) as number[];
    expect(tokenIds).not.toContain(imageId);
    const { tokenIds: updated, placeholders } = await applyPromptUpdatesToText(tokenIds, [imageUpdate(3)], promptText);
    expect(placeholders).toEqual([{ offset: updated.indexOf(imageId), length: 3, isEmbed: null }]);
    expect(tokenizer.decode(updated)).toBe("What: <image><image><image>!");
  });

  test("a text target matches a token if it is one, and characters within another token", async () => {
    const foo: PromptTarget = { kind: "text", text: "foo" };
    const tokenIds = await promptText.encode("good food");
    expect(await applied(tokenIds, replace(foo, [imageId]))).toEqual([tokenIds, [null]]);
    const byText = await applyPromptUpdatesToText(tokenIds, [replace(foo, [imageId])], promptText);
    expect(tokenizer.decode(byText.tokenIds)).toBe("good <image>d");
    const special = await promptText.encode("a<image>b");
    expect(await applied(special, replace({ kind: "text", text: "<image>" }, [imageId, imageId]))).toEqual([
      special.flatMap((tokenId) => (tokenId === imageId ? [imageId, imageId] : [tokenId])),
      [special.indexOf(imageId)],
    ]);
  });

  test("an empty text matches at once in a text, and never in tokens", async () => {
    const tokenIds = await promptText.encode("any");
    const items = [insert({ kind: "text", text: "" }, [imageId])];
    expect((await applyPromptUpdates(tokenIds, items, promptText)).placeholders).toEqual([null]);
    expect((await applyPromptUpdatesToText(tokenIds, items, promptText)).tokenIds).toEqual([imageId, ...tokenIds]);
  });

  test("characters of regular expressions are literal", async () => {
    const tokenIds = await promptText.encode("a |x.* b");
    const items = [replace({ kind: "text", text: "|x.*" }, [imageId])];
    const { tokenIds: updated } = await applyPromptUpdatesToText(tokenIds, items, promptText);
    expect(tokenizer.decode(updated)).toBe("a <image> b");
  });

  test("prompts whose placeholders are tokens give the same result as text and as tokens", async () => {
    const pieces = fc.array(fc.constantFrom("<image>", " a", " red", "circle", "\n", "😀"), { maxLength: 12 });
    const items = fc.array(
      fc.record({
        mode: fc.constantFrom<Mode>("replacement", "insertion"),
        target: fc.constantFrom<PromptTarget>({ kind: "tokens", tokenIds: [imageId] }, start, end),
        length: fc.integer({ min: 1, max: 4 }),
      }),
      { maxLength: 4 },
    );
    const property = fc.asyncProperty(pieces, items, async (words, rules) => {
      const tokenIds = await promptText.encode(words.join(""));
      const updates = rules.map(({ mode, target, length }) => [
        update(
          mode,
          target,
          Array.from({ length }, () => imageId),
        ),
      ]);
      const byTokens = await applyPromptUpdates(tokenIds, updates, promptText);
      const byText = await applyPromptUpdatesToText(tokenIds, updates, promptText);
      expect(tokenizer.decode(byText.tokenIds)).toBe(tokenizer.decode(byTokens.tokenIds));
      // An insertion may split a possible token.
      const areTokensKept = rules.every(({ mode, target }) => mode === "replacement" && target.kind === "tokens");
      expect(areTokensKept ? byText : byTokens).toEqual(byTokens);
    });
    await fc.assert(property, { numRuns: 300 });
  });
});

test("every range contains its item's content, and the rest is the prompt without the replaced targets", async () => {
  const token = fc.integer({ min: 0, max: 3 });
  const target = fc.oneof(
    fc.array(token, { maxLength: 2 }).map((tokenIds): PromptTarget => ({ kind: "tokens", tokenIds })),
    fc.constantFrom<PromptTarget>(start, end, { kind: "prefix", sequence: { kind: "tokens", tokenIds: [1] } }),
  );
  const rule = fc.record({
    mode: fc.constantFrom<Mode>("replacement", "insertion"),
    target,
    // Contents are distinguished from the prompt and from each other by their tokens.
    length: fc.integer({ min: 1, max: 5 }),
  });
  const property = fc.asyncProperty(
    fc.array(token, { maxLength: 40 }),
    fc.array(rule, { maxLength: 8 }),
    async (prompt, rules) => {
      const items = rules.map(({ mode, target, length }, item) => [
        update(
          mode,
          target,
          Array.from({ length }, () => 100 + item),
        ),
      ]);
      const { tokenIds, placeholders } = await applyPromptUpdates(prompt, items, promptText);
      const restored = [...tokenIds];
      const ranges = placeholders.flatMap((range, item) => (range === null ? [] : [{ range, item }]));
      for (const { range, item } of ranges.sort((left, right) => right.range.offset - left.range.offset)) {
        const { mode, target, content } = items[item]![0]!;
        expect(tokenIds.slice(range.offset, range.offset + range.length)).toEqual(content.full);
        const replaced = mode === "replacement" && target.kind === "tokens" ? target.tokenIds : [];
        restored.splice(range.offset, range.length, ...replaced);
      }
      expect(restored).toEqual(prompt);
    },
  );
  await fc.assert(property, { numRuns: 2000 });
});

test("replacements alone are placed like vLLM's rounds place them", async () => {
  const token = fc.integer({ min: 0, max: 2 });
  const targets = fc.array(fc.array(token, { minLength: 1, maxLength: 2 }), { maxLength: 6 });
  const property = fc.asyncProperty(fc.array(token, { maxLength: 30 }), targets, async (prompt, itemTargets) => {
    const items = itemTargets.map((target, item) => replace(target, [100 + item]));
    const { placeholders } = await applyPromptUpdates(prompt, items, promptText);
    expect(placeholders.map((range) => range?.offset ?? null)).toEqual(offsetsByRounds(prompt, itemTargets));
  });
  await fc.assert(property, { numRuns: 2000 });
});

/** Contents of one token each, computed directly from the description of the rounds. */
function offsetsByRounds(prompt: readonly number[], targets: readonly (readonly number[])[]): (number | null)[] {
  const offsets = targets.map((): number | null => null);
  let position = 0;
  let shift = 0;
  for (;;) {
    const matches = targets.flatMap((target, item) => {
      const found = prompt.findIndex(
        (_, index) => index >= position && target.every((tokenId, at) => prompt[index + at] === tokenId),
      );
      return offsets[item] === null && found !== -1 ? [{ item, found, length: target.length }] : [];
    });
    const [first] = matches.sort(
      (left, right) => left.found - right.found || left.found + left.length - right.found - right.length,
    );
    if (first === undefined) return offsets;
    offsets[first.item] = first.found + shift;
    position = first.found + first.length;
    shift += 1 - first.length;
  }
}

test("occurrences are counted without overlap", () => {
  expect(countOccurrences([1, 1, 1, 2, 1, 1], [1, 1])).toBe(2);
  expect(countOccurrences([], [1])).toBe(0);
  expect(countOccurrences([1, 2], [])).toBe(0);
});

test("thousands of items with one target, and as many with different targets, are all placed", async () => {
  const shared = Array.from({ length: 60_000 }, (_, index) => index % 3);
  const equal = Array.from({ length: 2000 }, () => replace([0, 1, 2], [7]));
  const offsetsOf = (ranges: readonly (PlaceholderRange | null)[]) => ranges.map((range) => range?.offset);
  const inOrder = Array.from({ length: 2000 }, (_, item) => item);
  expect(offsetsOf((await applyPromptUpdates(shared, equal, promptText)).placeholders)).toEqual(inOrder);
  const own = Array.from({ length: 2000 }, (_, item) => replace([item, 5000], [7]));
  const prompt = own.flatMap((_, item) => [item, 5000]);
  expect(offsetsOf((await applyPromptUpdates(prompt, own, promptText)).placeholders)).toEqual(inOrder);
});
