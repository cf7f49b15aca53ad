import * as fc from "fast-check";
import { expect, test } from "vitest";

import { coverSlots } from "../../../engine/kv/slot-ranges.ts";

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
