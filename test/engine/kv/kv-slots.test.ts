import * as fc from "fast-check";
import { expect, test } from "vitest";

import { coverSlots, KvSlots } from "../../../engine/kv/kv-slots.ts";

test("the lowest empty slot is taken first, then the slot that was freed first", () => {
  const slots = new KvSlots(3, 8);
  for (const slot of [0, 1, 2]) {
    expect(slots.findFree()).toBe(slot);
    slots.take(slot, 0);
    slots.setNumKeptTokens(slot, slot);
  }
  expect(slots.findFree()).toBeNull();
  for (const slot of [2, 1, 0]) slots.free(slot);
  expect(slots.findFree()).toBe(0);
  slots.take(0, 0);
  expect(slots.findFree()).toBe(2);
  slots.take(2, 0);
  expect(slots.findFree()).toBe(1);
});

test("a freed slot keeps its tokens until it is taken, and then only the reused ones", () => {
  const slots = new KvSlots(1, 8);
  slots.take(0, 0);
  slots.setNumKeptTokens(0, 5);
  slots.free(0);
  expect([slots.numKeptTokens(0), slots.usage]).toEqual([5, 0]);
  expect(() => slots.take(0, 6)).toThrow("6 tokens of KV slot 0 are reused; it keeps 5");
  slots.take(0, 3);
  expect([slots.numKeptTokens(0), slots.usage]).toEqual([3, 3 / 8]);
});

test("a slot can be taken once and freed once", () => {
  const slots = new KvSlots(1, 8);
  slots.take(0, 0);
  expect(() => slots.take(0, 0)).toThrow("KV slot 0 is taken twice");
  slots.free(0);
  expect(() => slots.free(0)).toThrow("KV slot 0 is freed but not taken");
});

test("a slot never keeps all its positions, because unused rows write to the last one", () => {
  const slots = new KvSlots(1, 8);
  slots.take(0, 0);
  expect(() => slots.setNumKeptTokens(0, 8)).toThrow("keeps 8 tokens; it has 8 positions");
});

test("slots in use and usage are correct after any sequence of takes and frees", () => {
  fc.assert(
    fc.property(fc.array(fc.record({ takes: fc.boolean(), numTokens: fc.nat(7), pick: fc.nat() })), (operations) => {
      const slots = new KvSlots(4, 8);
      const inUse = new Map<number, number>();
      const kept = [0, 0, 0, 0];
      for (const { takes, numTokens, pick } of operations) {
        const free = takes ? slots.findFree() : null;
        if (free !== null) {
          const numReused = numTokens % (kept[free]! + 1);
          slots.take(free, numReused);
          slots.setNumKeptTokens(free, numTokens);
          inUse.set(free, numTokens);
          kept[free] = numTokens;
        } else if (!takes && inUse.size > 0) {
          const freed = [...inUse.keys()][pick % inUse.size]!;
          slots.free(freed);
          inUse.delete(freed);
        }
        expect(slots.numFree).toBe(4 - inUse.size);
        expect(slots.usage).toBe([...inUse.values()].reduce((sum, tokens) => sum + tokens, 0) / 32);
        expect(kept.map((_, slot) => slots.numKeptTokens(slot))).toEqual(kept);
      }
    }),
  );
});

const ascendingSlots = fc.uniqueArray(fc.nat(40)).map((slots) => slots.toSorted((left, right) => left - right));

test("slots with small gaps form one range, and a wide gap splits it", () => {
  expect(coverSlots([0, 1, 4, 9, 10], 64)).toEqual([
    { firstSlot: 0, numSlots: 5 },
    { firstSlot: 9, numSlots: 2 },
  ]);
});

test("no slots give no ranges", () => {
  expect(coverSlots([], 8)).toEqual([]);
});

test("a device that runs one slot at a time gets one range per slot", () => {
  expect(coverSlots([0, 1, 3], 1)).toEqual([
    { firstSlot: 0, numSlots: 1 },
    { firstSlot: 1, numSlots: 1 },
    { firstSlot: 3, numSlots: 1 },
  ]);
});

test("ranges cover every slot once, start and end at one, ascend and stay within the limit", () => {
  fc.assert(
    fc.property(ascendingSlots, fc.integer({ min: 1, max: 12 }), (slots, maxSlotsPerRun) => {
      const ranges = coverSlots(slots, maxSlotsPerRun);
      const covered = ranges.map(({ firstSlot, numSlots }) =>
        slots.filter((slot) => slot >= firstSlot && slot < firstSlot + numSlots),
      );
      expect(covered.flat()).toEqual(slots);
      ranges.forEach(({ firstSlot, numSlots }, index) => {
        expect(numSlots).toBeLessThanOrEqual(maxSlotsPerRun);
        expect(covered[index]![0]).toBe(firstSlot);
        expect(covered[index]!.at(-1)).toBe(firstSlot + numSlots - 1);
      });
    }),
  );
});
