import { describe, expect, test } from "vitest";

import type { ImageFeature } from "../../../engine/core/engine-request.ts";
import { PromptLookup } from "../../../engine/scheduler/prompt-lookup.ts";

const IMAGE = -7;

/** What the look-up promises, by a search over all tokens. */
function searched(tokenIds: readonly number[], longest: number, shortest: number, maxTokens: number): number[] {
  for (let size = Math.min(longest, tokenIds.length - 1); size >= shortest; size--) {
    const last = tokenIds.slice(-size);
    if (last.includes(IMAGE)) continue;
    for (let start = 0; start + size < tokenIds.length; start++) {
      const isEqual = last.every((tokenId, index) => tokenIds[start + index] === tokenId);
      if (!isEqual || tokenIds[start + size] === IMAGE) continue;
      const following = tokenIds.slice(start + size, start + size + maxTokens);
      const image = following.indexOf(IMAGE);
      return image === -1 ? following : following.slice(0, image);
    }
  }
  return [];
}

function imageAt(offset: number, length: number): ImageFeature {
  return { tensors: new Map(), mmHash: "", placeholder: { offset, length, isEmbed: null } };
}

/** Whole numbers from 0 up to, but not including, `end`, from a generator with a fixed seed. */
function createRandom(seed: number): (end: number) => number {
  let state = seed;
  return (end) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * end);
  };
}

describe("PromptLookup", () => {
  test("proposes the tokens after the first occurrence of the longest n-gram", () => {
    const promptTokenIds = [1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3];
    const lookup = new PromptLookup(
      { promptLookupMax: 3, promptLookupMin: 2 },
      { promptTokenIds, outputTokenIds: [], images: [] },
    );
    expect(lookup.propose(4)).toEqual([4, 9, 2, 3]);
  });

  test("proposes what a search over all tokens finds, after every token of random sequences with images", () => {
    const random = createRandom(4);
    let numFound = 0;
    for (let round = 0; round < 60; round++) {
      const vocabSize = 2 + random(6);
      const longest = 1 + random(5);
      const shortest = 1 + random(longest);
      const promptTokenIds: number[] = [];
      const images: ImageFeature[] = [];
      while (promptTokenIds.length < 80) {
        if (random(25) === 0) {
          const length = 1 + random(6);
          images.push(imageAt(promptTokenIds.length, length));
          promptTokenIds.push(...Array.from({ length }, () => IMAGE));
        } else {
          promptTokenIds.push(random(vocabSize));
        }
      }
      const outputTokenIds: number[] = [];
      const sizes = { promptLookupMax: longest, promptLookupMin: shortest };
      const lookup = new PromptLookup(sizes, { promptTokenIds, outputTokenIds, images });
      for (let step = 0; step < 120; step++) {
        const maxTokens = 1 + random(8);
        const expected = searched([...promptTokenIds, ...outputTokenIds], longest, shortest, maxTokens);
        expect(lookup.propose(maxTokens)).toEqual(expected);
        numFound += expected.length;
        outputTokenIds.push(...Array.from({ length: random(3) }, () => random(vocabSize)));
      }
    }
    expect(numFound).toBeGreaterThan(1000);
  });

  test("does not match an image, nor propose its tokens, even if text has their id", () => {
    const tokens = { promptTokenIds: [5, 5, 5, 5, 1, 2], outputTokenIds: [] as number[], images: [imageAt(0, 4)] };
    const lookup = new PromptLookup({ promptLookupMax: 2, promptLookupMin: 1 }, tokens);
    tokens.outputTokenIds.push(5);
    expect(lookup.propose(4)).toEqual([]);
    tokens.outputTokenIds.push(1);
    expect(lookup.propose(4)).toEqual([2, 5, 1]);
  });
});
