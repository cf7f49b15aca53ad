/** Groups of slots, shown over host memory that ONNX Runtime allocates. On WebGPU itself: webgpu-slots.test.ts. */
import * as fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";

import { createKvCache } from "../../../engine/kv/create-kv-cache.ts";
import { GroupedKvCache, planGroupSize } from "../../../engine/kv/grouped-kv-cache.ts";
import type { KvCache, KvSession } from "../../../engine/kv/kv-cache.ts";
import type { DecoderGraph } from "../../../engine/models/built-model.ts";
import type { Session } from "../../../engine/runtime/session.ts";
import { loadDecoderWithDeviceMemory } from "./decoder-with-device-memory.ts";
import type { DecoderWithDeviceMemory } from "./decoder-with-device-memory.ts";
import { maxDifference, run } from "./run-over-cache.ts";

const numSlots = 7;
const maxLen = 32;
/** Two groups of this size, and one of a single slot. */
const groupSize = 3;

let loaded: DecoderWithDeviceMemory;
let graph: DecoderGraph;
let session: Session;
let device: KvSession;

beforeAll(async () => {
  loaded = await loadDecoderWithDeviceMemory();
  ({ graph, session, device } = loaded);
});

afterAll(() => loaded[Symbol.asyncDispose]());

/** Slots by turns in a cache of groups, and each alone in one whose slots need no groups. */
class BothCaches implements Disposable {
  readonly grouped: KvCache = new GroupedKvCache(device, graph, { numSlots, maxLen }, groupSize);
  readonly plain = createKvCache(session, graph, { numSlots, maxLen });
  largestError = 0;
  numDecoded = 0;
  readonly numKept = Array.from({ length: numSlots }, () => 0);

  prefill(slot: number, tokenIds: readonly number[]): void {
    const firstToken = this.numKept[slot]!;
    const endToken = firstToken + tokenIds.length;
    this.grouped.prepare({ firstSlot: slot, numSlots: 1 }, { firstToken, endToken });
    const [actual, expected] = [this.grouped, this.plain].map((cache) =>
      run({ cache, session, graph }, slot, [tokenIds], [firstToken]),
    );
    this.#note(actual!, expected!);
    this.numKept[slot] = endToken;
  }

  decode(slots: readonly number[], hasPrompts: boolean): void {
    const { vocabSize } = graph;
    const ranges = this.grouped.planRanges(slots, hasPrompts);
    for (const range of ranges) {
      const members = slots.filter((slot) => slot >= range.firstSlot && slot < range.firstSlot + range.numSlots);
      const firstToken = this.numKept[members[0]!]!;
      this.grouped.prepare(range, { firstToken, endToken: firstToken + 1 });
      const rows = Array.from({ length: range.numSlots }, (_, row) => range.firstSlot + row);
      const tokenIds = rows.map((slot) => [members.includes(slot) ? 9 + slot : 0]);
      const numKept = rows.map((slot) => this.numKept[slot]!);
      const logits = run({ cache: this.grouped, session, graph }, range.firstSlot, tokenIds, numKept);
      for (const slot of members) {
        const expected = run({ cache: this.plain, session, graph }, slot, [[9 + slot]], [this.numKept[slot]!]);
        const row = slot - range.firstSlot;
        this.#note(logits.subarray(row * vocabSize, (row + 1) * vocabSize), expected);
      }
      this.numDecoded += members.length;
    }
    for (const slot of slots) this.numKept[slot]! += 1;
  }

  copy(fromSlot: number, toSlot: number, numTokens: number): void {
    for (const cache of [this.grouped, this.plain]) cache.transfer!({ kind: "copy", fromSlot, toSlot, numTokens });
    this.numKept[toSlot] = numTokens;
  }

  swap(first: number, second: number): void {
    const numTokens = [this.numKept[first]!, this.numKept[second]!] as const;
    for (const cache of [this.grouped, this.plain])
      cache.transfer!({ kind: "swap", slots: [first, second], numTokens });
    [this.numKept[second], this.numKept[first]] = numTokens;
  }

  #note(actual: Float32Array, expected: Float32Array): void {
    this.largestError = Math.max(this.largestError, maxDifference(actual, expected));
  }

  [Symbol.dispose](): void {
    this.grouped[Symbol.dispose]();
    this.plain[Symbol.dispose]();
  }
}

test("any order of prompts, decodes, copies and swaps computes what each slot computes alone", () => {
  const slot = fc.nat(numSlots - 1);
  const operation = fc.oneof(
    {
      weight: 3,
      arbitrary: fc.record({ kind: fc.constant("prefill" as const), slot, length: fc.integer({ min: 1, max: 5 }) }),
    },
    {
      weight: 4,
      arbitrary: fc.record({
        kind: fc.constant("decode" as const),
        slots: fc.uniqueArray(slot, { minLength: 1 }),
        hasPrompts: fc.boolean(),
      }),
    },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant("copy" as const), slot, other: slot, share: fc.nat(10) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant("swap" as const), slot, other: slot }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant("shorten" as const), slot, share: fc.nat(10) }) },
  );
  fc.assert(
    fc.property(fc.array(operation, { minLength: 10, maxLength: 40 }), (operations) => {
      using caches = new BothCaches();
      const { numKept } = caches;
      let numToDecode = 0;
      for (const [index, step] of operations.entries()) {
        if (step.kind === "decode") {
          const slots = step.slots.filter((each) => numKept[each]! > 0 && numKept[each]! < maxLen - 1);
          numToDecode += slots.length;
          if (slots.length > 0)
            caches.decode(
              slots.toSorted((left, right) => left - right),
              step.hasPrompts,
            );
        } else if (step.kind === "prefill") {
          if (numKept[step.slot]! + step.length >= maxLen) continue;
          caches.prefill(
            step.slot,
            Array.from({ length: step.length }, (_, token) => 5 + ((index * 7 + token) % 80)),
          );
        } else if (step.kind === "shorten") {
          numKept[step.slot] = Math.floor((numKept[step.slot]! * step.share) / 10);
        } else if (step.slot !== step.other) {
          if (step.kind === "swap") caches.swap(step.slot, step.other);
          else caches.copy(step.slot, step.other, Math.floor((numKept[step.slot]! * step.share) / 10));
        }
      }
      expect(caches.largestError).toBeLessThan(1e-3);
      expect(caches.numDecoded).toBe(numToDecode);
    }),
    { numRuns: 60, seed: 11 },
  );
});

test("slots of a group decode as one batch, and a single slot decodes without the others of its group", () => {
  using cache = new GroupedKvCache(device, graph, { numSlots, maxLen }, groupSize);
  expect(cache.planRanges([0, 2, 4, 5], false)).toEqual([
    { firstSlot: 0, numSlots: 3 },
    { firstSlot: 3, numSlots: 3 },
  ]);
  expect(cache.planRanges([1], false)).toEqual([{ firstSlot: 1, numSlots: 1 }]);
  // There is one place beside the groups, and prompts come first.
  expect(cache.planRanges([2, 5], false)).toEqual([
    { firstSlot: 2, numSlots: 1 },
    { firstSlot: 3, numSlots: 3 },
  ]);
  expect([2, 5].map((slot) => cache.rangeOf(slot, slot))).toEqual([
    { firstSlot: 2, numSlots: 1 },
    { firstSlot: 3, numSlots: 3 },
  ]);
  expect(cache.planRanges([2], true)).toEqual([{ firstSlot: 0, numSlots: 3 }]);
  cache.prepare({ firstSlot: 2, numSlots: 1 }, { firstToken: 0, endToken: 4 });
  expect(cache.planRanges([2], true)).toEqual([{ firstSlot: 2, numSlots: 1 }]);
  expect(cache.planRanges([6], true)).toEqual([{ firstSlot: 6, numSlots: 1 }]);
});

test("groups are as large as a buffer that every adapter binds, and of about the same size", () => {
  const shape = { numLayers: 32, numKvHeads: 8, headDim: 128, kvElementType: "float16" } as const;
  // 16 MiB a slot: at most 8 of them in 128 MiB.
  expect(planGroupSize(shape, { numSlots: 64, maxLen: 8192 })).toBe(8);
  expect(planGroupSize(shape, { numSlots: 9, maxLen: 8192 })).toBe(5);
  expect(planGroupSize(shape, { numSlots: 64, maxLen: 2 ** 17 })).toBe(1);
  expect(planGroupSize(shape, { numSlots: 3, maxLen: 512 })).toBe(3);
});
