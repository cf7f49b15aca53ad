import * as fc from "fast-check";
import { expect, test } from "vitest";

import { numSequencesThatFit, planKvCache } from "../../../engine/kv/memory-plan.ts";
import { numBlocksOf, planSlotBlocks } from "../../../engine/kv/plan-slot-blocks.ts";

const gibibyte = 2 ** 30;
const llava7b = { numLayers: 32, numKvHeads: 32, headDim: 128, kvElementType: "int8" } as const;
const options = { maxNumSequences: 32, maxLen: 4096, pageBytes: 4096, totalMemoryBytes: 24 * gibibyte };

test("LLaVA-1.5-7B with 8-bit keys and values shares 16 GiB among 32 sequences, not among 14", () => {
  // Int4 weights with an 8-bit form for prompts would leave less. 24 * 0.9 - 5 - 160 MiB = 16.4 GiB.
  const memory = { weightBytes: 5 * gibibyte, machineBytes: 24 * gibibyte };
  expect(numSequencesThatFit(llava7b, options, memory)).toBe(16);
  const plan = planSlotBlocks(llava7b, options, memory)!;
  // A block is 32 tokens of 128 bytes: a page for keys and values of 32 heads of 32 layers, 8 MiB.
  expect(plan).toMatchObject({ numSlots: 32, slotLength: 4096, capacity: { blockSize: 32 } });
  expect(plan.capacity.numBlocks).toBe(Math.floor(plan.totalBytes / (8 * 2 ** 20)));
  expect(plan.capacity.numTokens).toBe(plan.capacity.numBlocks * 32);
});

test("memory for all sequences at full length is not shared, nor where pages cannot be given back", () => {
  const roomy = { weightBytes: 0, machineBytes: 64 * gibibyte };
  expect(planSlotBlocks(llava7b, options, roomy)).toBeNull();
  const scarce = { weightBytes: 0, machineBytes: 16 * gibibyte };
  expect(planSlotBlocks(llava7b, { ...options, pageBytes: null }, scarce)).toBeNull();
  expect(planSlotBlocks({ ...llava7b, form: "export" }, options, scarce)).toBeNull();
  expect(planSlotBlocks(llava7b, options, scarce)).not.toBeNull();
});

test("a limit of the settings takes the place of the machine's memory", () => {
  const memory = { weightBytes: 0, machineBytes: 64 * gibibyte, maxKvBytes: 4 * gibibyte };
  expect(planSlotBlocks(llava7b, options, memory)).toMatchObject({
    numSlots: 32,
    totalBytes: 4 * gibibyte,
    capacity: { numBlocks: 512, numTokens: 16_384 },
  });
});

test("any plan has room for one sequence of full length beside a block of each other slot, within the budget", () => {
  fc.assert(
    fc.property(
      fc.record({
        numLayers: fc.integer({ min: 1, max: 40 }),
        numKvHeads: fc.integer({ min: 1, max: 32 }),
        headDim: fc.constantFrom(16, 64, 72, 80, 96, 128, 256),
        kvElementType: fc.constantFrom("float32" as const, "int8" as const),
      }),
      fc.record({ maxNumSequences: fc.integer({ min: 1, max: 4096 }), maxLen: fc.integer({ min: 2, max: 131_072 }) }),
      fc.integer({ min: 2 ** 20, max: 2 ** 36 }),
      fc.constantFrom(4096, 16_384, 65_536),
      (shape, limits, maxKvBytes, pageBytes) => {
        const memory = { weightBytes: 0, machineBytes: 2 ** 40, maxKvBytes };
        const plan = planSlotBlocks(shape, { ...limits, pageBytes, totalMemoryBytes: 2 ** 36 }, memory);
        if (plan === null) return;
        const { numBlocks } = plan.capacity;
        const blockBytes = 2 * shape.numLayers * shape.numKvHeads * pageBytes;
        expect(numBlocks * blockBytes).toBeLessThanOrEqual(maxKvBytes);
        expect(numBlocksOf(plan, limits.maxLen) + plan.numSlots - 1).toBeLessThanOrEqual(numBlocks);
        expect((plan.slotLength * plan.headBytes) % pageBytes).toBe(0);
        expect(plan.slotLength).toBeGreaterThanOrEqual(limits.maxLen);
        expect(plan.numSlots).toBeGreaterThan(numSequencesThatFit(shape, limits, memory));
        expect(
          planSlotBlocks(
            shape,
            { ...limits, maxNumSequences: plan.numSlots, pageBytes, totalMemoryBytes: 2 ** 36 },
            memory,
          )?.numSlots ?? plan.numSlots,
        ).toBe(plan.numSlots);
        expect(planKvCache(shape, { numSlots: 1, maxLen: 1 }).bytesPerToken).toBe(
          (blockBytes / pageBytes) * plan.headBytes,
        );
      },
    ),
    { numRuns: 500, seed: 3 },
  );
});
