import * as fc from "fast-check";
import { expect, test } from "vitest";
import { KvSlots } from "../../engine/core/kv-slots.ts";

test("the lowest free slot is taken first", () => {
  const slots = new KvSlots(3, 8);
  expect([slots.tryAllocate(), slots.tryAllocate(), slots.tryAllocate(), slots.tryAllocate()]).toEqual([0, 1, 2, null]);
  slots.free(1);
  slots.free(0);
  expect([slots.tryAllocate(), slots.tryAllocate()]).toEqual([0, 1]);
});

test("a slot is freed once", () => {
  const slots = new KvSlots(1, 8);
  slots.tryAllocate();
  slots.free(0);
  expect(() => slots.free(0)).toThrow("KV slot 0 is freed but not taken");
});

test("a slot never keeps all of its positions: rows that ride along write to the last", () => {
  const slots = new KvSlots(1, 8);
  slots.tryAllocate();
  expect(() => slots.setNumKeptTokens(0, 8)).toThrow("keeps 8 tokens; it has 8 positions");
});

test("slots in use and usage follow any sequence of allocations and frees", () => {
  fc.assert(
    fc.property(
      fc.array(fc.record({ allocates: fc.boolean(), numTokens: fc.nat(7), pick: fc.nat() })),
      (operations) => {
        const slots = new KvSlots(4, 8);
        const kept = new Map<number, number>();
        for (const { allocates, numTokens, pick } of operations) {
          const lowestFree = [0, 1, 2, 3].find((candidate) => !kept.has(candidate)) ?? null;
          const allocated = allocates ? slots.tryAllocate() : null;
          expect(allocated).toBe(allocates ? lowestFree : null);
          if (allocated !== null) {
            slots.setNumKeptTokens(allocated, numTokens);
            kept.set(allocated, numTokens);
          } else if (!allocates && kept.size > 0) {
            const freed = [...kept.keys()][pick % kept.size];
            slots.free(freed);
            kept.delete(freed);
          }
          expect(slots.numFree).toBe(4 - kept.size);
          expect(slots.usage).toBe([...kept.values()].reduce((sum, tokens) => sum + tokens, 0) / 32);
        }
      },
    ),
  );
});
