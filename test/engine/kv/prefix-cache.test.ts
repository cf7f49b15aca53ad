import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { createSamplingParams } from "../../../engine/contract/sampling-params.ts";
import type { EngineRequest } from "../../../engine/core/engine-request.ts";
import { KvSlots } from "../../../engine/kv/kv-slots.ts";
import { PrefixCache } from "../../../engine/kv/prefix-cache.ts";
import type { PrefixCacheOptions } from "../../../engine/kv/prefix-cache.ts";
import type { PromptPositions } from "../../../engine/multimodal/prompt-positions.ts";
import { numSharedTokens, Sequence } from "../../../engine/scheduler/sequence.ts";
import { createImage, createRequest } from "../scheduler/create-scheduler.ts";

function sequenceOf(promptTokenIds: readonly number[], overrides: Partial<EngineRequest> = {}): Sequence {
  return new Sequence({ ...createRequest("a"), promptTokenIds, ...overrides });
}

function countFrom(first: number, length: number): number[] {
  return Array.from({ length }, (_, index) => first + index);
}

/** Of 12 tokens: from `token` on, columns are `shift` further. */
function positionsAfter(token: number, shift: number): PromptPositions {
  const line = countFrom(0, 12);
  const columns = line.map((place) => (place < token ? place : place + shift));
  return { axes: Int32Array.from([...line, ...line, ...columns]), next: 12 };
}

describe("shared tokens", () => {
  const prompt = countFrom(0, 12);
  const cat = createImage("cat", 4, 4);

  test.for<[string, Partial<EngineRequest>, Partial<EngineRequest>, number]>([
    ["end at the first that differs", { promptTokenIds: [0, 1, 2, 99] }, {}, 3],
    ["are all of an equal prompt", {}, {}, 12],
    ["go on through the same image", { images: [cat] }, { images: [cat] }, 12],
    ["end at another image", { images: [cat] }, { images: [createImage("dog", 4, 4)] }, 4],
    ["end at the same image elsewhere", { images: [cat] }, { images: [createImage("cat", 5, 4)] }, 4],
    ["end at an image where the other has none", {}, { images: [cat] }, 4],
    ["end at the second image that differs", { images: [cat, createImage("a", 9, 2)] }, { images: [cat] }, 9],
    ["do not care for images behind them", { promptTokenIds: [0, 1, 99] }, { images: [cat] }, 2],
    ["may end within an image", { promptTokenIds: [0, 1, 2, 3, 4, 99], images: [cat] }, { images: [cat] }, 5],
    ["are none for another salt", { cacheSalt: "one" }, { cacheSalt: "two" }, 0],
    ["are none for no salt", { cacheSalt: "one" }, {}, 0],
    ["are those of the same salt", { cacheSalt: "one" }, { cacheSalt: "one" }, 12],
    ["end where positions differ", { positions: positionsAfter(6, 2) }, { positions: positionsAfter(6, 3) }, 6],
    ["end where only one has other positions", { positions: positionsAfter(7, 1) }, {}, 7],
    ["go on through equal positions", { positions: positionsAfter(6, 2) }, { positions: positionsAfter(6, 2) }, 12],
    ["go on where every position is the index", { positions: positionsAfter(6, 0) }, {}, 12],
  ])("%s", ([, left, right, expected]) => {
    const known = sequenceOf(prompt, left).tokens;
    const asked = sequenceOf(prompt, right).tokens;
    expect(numSharedTokens(known, asked, 100)).toBe(expected);
    expect(numSharedTokens(asked, known, 100)).toBe(expected);
    expect(numSharedTokens(known, asked, 2)).toBe(Math.min(expected, 2));
  });

  test("include the generated tokens of the known sequence", () => {
    const known = sequenceOf([0, 1, 2]);
    known.outputTokenIds.push(3, 4, 99);
    expect(numSharedTokens(known.tokens, sequenceOf(prompt).tokens, 100)).toBe(5);
  });

  test("include generated tokens at the positions after those of the prompt", () => {
    const positions = { axes: Int32Array.from([0, 1, 2, 0, 1, 2, 0, 1, 3]), next: 4 };
    const known = sequenceOf([0, 1, 2], { positions });
    known.outputTokenIds.push(3, 4);
    const line = [0, 1, 2, 4, 5];
    const axes = Int32Array.from([...line, ...line, 0, 1, 3, 4, 5]);
    const next = sequenceOf([0, 1, 2, 3, 4], { positions: { axes, next: 6 } });
    expect(numSharedTokens(known.tokens, next.tokens, 100)).toBe(5);
    expect(numSharedTokens(known.tokens, sequenceOf([0, 1, 2, 3, 4]).tokens, 100)).toBe(2);
  });

  test("are the longest common prefix of any two sequences", () => {
    const ids = fc.array(fc.nat(1), { maxLength: 6 });
    fc.assert(
      fc.property(ids, ids, ids, fc.nat(8), (promptIds, outputIds, asked, limit) => {
        const known = sequenceOf(promptIds);
        known.outputTokenIds.push(...outputIds);
        const all = [...promptIds, ...outputIds];
        const differs = asked.findIndex((id, index) => all[index] !== id);
        const expected = Math.min(differs === -1 ? asked.length : differs, limit);
        expect(numSharedTokens(known.tokens, sequenceOf(asked).tokens, limit)).toBe(expected);
      }),
    );
  });
});

describe("a slot for a prompt", () => {
  interface Kept {
    readonly slot: number;
    readonly ids: readonly number[];
    readonly isRunning?: boolean;
    /** Default: all. */
    readonly numComputed?: number;
  }

  function cacheWith(kept: readonly Kept[], options: Partial<PrefixCacheOptions> = {}, numSlots = 3) {
    const kvSlots = new KvSlots(numSlots, 200);
    const prefixCache = new PrefixCache(kvSlots, { canTransfer: true, ...options });
    for (const { slot, ids, isRunning = false, numComputed = ids.length } of kept) {
      prefixCache.take(sequenceOf(ids), { kvSlot: slot, numCachedTokens: 0, prefixSlot: null, swappedSlot: null });
      kvSlots.setNumKeptTokens(slot, numComputed);
      if (!isRunning) prefixCache.release(slot, true);
    }
    return prefixCache;
  }

  const history = countFrom(0, 100);
  const unrelated = countFrom(1000, 100);

  test.for<[string, readonly Kept[], readonly number[], object]>([
    ["an empty one where nothing is shared", [{ slot: 0, ids: unrelated }], history, { kvSlot: 1, numCachedTokens: 0 }],
    [
      "that of the conversation's last turn, in place",
      [
        { slot: 0, ids: unrelated },
        { slot: 1, ids: history },
      ],
      [...history, 7],
      { kvSlot: 1, numCachedTokens: 100, prefixSlot: null },
    ],
    [
      "the same prompt's, all but one token reused",
      [{ slot: 0, ids: history }],
      history,
      { kvSlot: 0, numCachedTokens: 99, prefixSlot: null },
    ],
    [
      "another one, with a copy, where most of the slot would be lost",
      [{ slot: 0, ids: history }],
      [...history.slice(0, 40), 7, 8],
      { kvSlot: 1, numCachedTokens: 40, prefixSlot: 0 },
    ],
    [
      "another one, with a copy, where the slot's sequence runs",
      [{ slot: 0, ids: history, isRunning: true }],
      [...history, 7],
      { kvSlot: 1, numCachedTokens: 100, prefixSlot: 0 },
    ],
    [
      "an empty one where too little is shared to copy",
      [{ slot: 0, ids: history }],
      [...history.slice(0, 15), 7, 8],
      { kvSlot: 1, numCachedTokens: 0, prefixSlot: null },
    ],
    [
      "the one freed first where all keep something, with what it happens to share",
      [
        { slot: 2, ids: history },
        { slot: 0, ids: unrelated },
        { slot: 1, ids: unrelated },
      ],
      [0, 1, 7],
      { kvSlot: 2, numCachedTokens: 2, prefixSlot: null },
    ],
    [
      "of equal matches the one that loses least",
      [
        { slot: 0, ids: [...history, ...unrelated.slice(0, 50)] },
        { slot: 1, ids: history },
      ],
      [...history, 7],
      { kvSlot: 1, numCachedTokens: 100, prefixSlot: null },
    ],
    [
      "only with what has been computed",
      [{ slot: 0, ids: history, numComputed: 60 }],
      [...history, 7],
      { kvSlot: 0, numCachedTokens: 60, prefixSlot: null },
    ],
  ])("is %s", ([, kept, prompt, expected]) => {
    expect(cacheWith(kept).tryPlace(sequenceOf(prompt))).toMatchObject(expected);
  });

  test("waits while a running sequence is about to compute the prefix", () => {
    const kept = [{ slot: 0, ids: history, isRunning: true, numComputed: 60 }];
    expect(cacheWith(kept).tryPlace(sequenceOf([...history, 7]))).toBeNull();
    expect(cacheWith(kept).tryPlace(sequenceOf([...history.slice(0, 70), 7]))).toMatchObject({ numCachedTokens: 60 });
  });

  test("is given at once if prefixes cannot be copied: reuse in place or not at all", () => {
    const options = { canTransfer: false };
    const running = [{ slot: 0, ids: history, isRunning: true, numComputed: 60 }];
    expect(cacheWith(running, options).tryPlace(sequenceOf(history))).toMatchObject({ kvSlot: 1, numCachedTokens: 0 });
    const turn = sequenceOf([...history.slice(0, 40), 7]);
    expect(cacheWith([{ slot: 0, ids: history }], options).tryPlace(turn)).toMatchObject({
      kvSlot: 0,
      numCachedTokens: 40,
      prefixSlot: null,
    });
  });

  test("is swapped with a slot next to those in use if it is far from them, and the other slot's tokens are still found", () => {
    const kept = [
      { slot: 0, ids: countFrom(2000, 50), isRunning: true },
      { slot: 1, ids: unrelated },
      { slot: 8, ids: history },
    ];
    const cache = cacheWith(kept, {}, 10);
    const turn = sequenceOf([...history, 7]);
    const placement = cache.tryPlace(turn);
    expect(placement).toEqual({ kvSlot: 1, numCachedTokens: 100, prefixSlot: null, swappedSlot: 8 });
    expect(cache.take(turn, placement!)).toEqual([{ kind: "swap", slots: [1, 8], numTokens: [100, 100] }]);
    const moved = cache.tryPlace(sequenceOf([...unrelated, 7]));
    expect(moved).toEqual({ kvSlot: 2, numCachedTokens: 100, prefixSlot: null, swappedSlot: 8 });
  });

  test("stays in place while nothing runs or no nearer slot is free", () => {
    const turn = sequenceOf([...history, 7]);
    const inPlace = { kvSlot: 8, numCachedTokens: 100, prefixSlot: null, swappedSlot: null };
    expect(cacheWith([{ slot: 8, ids: history }], {}, 10).tryPlace(turn)).toEqual(inPlace);
    const running = [0, 1, 2, 3, 4, 5, 6, 7].map((slot) => ({ slot, ids: countFrom(2000, 50), isRunning: true }));
    expect(cacheWith([...running, { slot: 8, ids: history }], {}, 10).tryPlace(turn)).toEqual(inPlace);
  });

  test("reuses nothing for prompt logprobs or when reuse is turned off", () => {
    const samplingParams = createSamplingParams({ promptLogprobs: 0 });
    const kept = [{ slot: 0, ids: history }];
    const placement = { kvSlot: 1, numCachedTokens: 0, prefixSlot: null, swappedSlot: null };
    expect(cacheWith(kept).tryPlace(sequenceOf(history, { samplingParams }))).toEqual(placement);
    const switchedOff = cacheWith(kept, { enablePrefixCaching: false });
    expect(switchedOff.tryPlace(sequenceOf(history))).toEqual({ ...placement, kvSlot: 0 });
  });
});
