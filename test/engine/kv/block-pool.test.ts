import * as fc from "fast-check";
import { expect, test } from "vitest";

import { BlockPool, SCRATCH_BLOCK_ID } from "../../../engine/kv/block-pool.ts";

test("gives every block once, and never the scratch block", () => {
  const pool = new BlockPool(6);
  const blockIds = Array.from({ length: 5 }, () => pool.allocate());
  expect(new Set(blockIds)).toEqual(new Set([1, 2, 3, 4, 5]));
  expect(blockIds).not.toContain(SCRATCH_BLOCK_ID);
  expect(pool.numFree).toBe(0);
  expect(pool.usage).toBe(1);
  expect(() => pool.allocate()).toThrow("a block is taken from a pool without free blocks");
});

test("a released block with a hash is found until it is needed, least recently released first", () => {
  const pool = new BlockPool(4);
  const [first, second, third] = [pool.allocate(), pool.allocate(), pool.allocate()];
  pool.setHash(first, "first");
  pool.setHash(second, "second");
  for (const blockId of [second, third, first]) pool.release(blockId);
  expect(pool.find("first")).toBe(first);
  expect([pool.allocate(), pool.allocate()]).toEqual([third, second]);
  expect(pool.find("second")).toBeNull();
  expect(pool.find("first")).toBe(first);
});

test("a held block is not evicted", () => {
  const pool = new BlockPool(3);
  const shared = pool.allocate();
  pool.setHash(shared, "shared");
  pool.release(shared);
  pool.hold(shared);
  expect(pool.allocate()).not.toBe(shared);
  expect(pool.numFree).toBe(0);
});

test("of two blocks with equal tokens, lookups find the first, and the second is freed without a hash", () => {
  const pool = new BlockPool(4);
  const [first, second] = [pool.allocate(), pool.allocate()];
  pool.setHash(first, "same");
  pool.setHash(second, "same");
  pool.release(first);
  pool.release(second);
  expect(pool.find("same")).toBe(first);
  expect(pool.allocate()).toBe(second);
});

test("a held block takes over the tokens of an equal unused block, so they are evicted later", () => {
  const evicted: string[] = [];
  const pool = new BlockPool(4, (hash) => evicted.push(hash));
  const first = pool.allocate();
  pool.setHash(first, "same");
  pool.release(first);
  const second = pool.allocate();
  pool.setHash(second, "same");
  expect(pool.find("same")).toBe(second);
  expect(pool.numFree).toBe(2);
  for (let index = 0; index < 2; index++) pool.allocate();
  expect(evicted).toEqual([]);
  pool.release(second);
  pool.allocate();
  expect(evicted).toEqual(["same"]);
});

/** A second account of the pool: what each holder has, and what was told of each block. */
test("any sequence of operations leaves no block lost or held without a holder", () => {
  const operation = fc.record({
    kind: fc.constantFrom("allocate", "release", "hash", "share"),
    pick: fc.nat({ max: 1000 }),
  });
  fc.assert(
    fc.property(fc.integer({ min: 2, max: 9 }), fc.array(operation, { maxLength: 80 }), (numBlocks, operations) => {
      const pool = new BlockPool(numBlocks);
      const held: number[] = [];
      const hashes = new Map<string, number>();
      operations.forEach(({ kind, pick }, index) => {
        const blockId = held[pick % Math.max(held.length, 1)];
        switch (kind) {
          case "allocate": {
            if (pool.numFree === 0) return;
            const allocated = pool.allocate();
            if (held.includes(allocated)) throw new Error(`Block ${allocated} was allocated while held.`);
            for (const [hash, hashed] of hashes) if (hashed === allocated) hashes.delete(hash);
            held.push(allocated);
            return;
          }
          case "release":
            if (blockId === undefined) return;
            pool.release(blockId);
            held.splice(held.indexOf(blockId), 1);
            return;
          case "hash":
            if (blockId === undefined || [...hashes.values()].includes(blockId)) return;
            pool.setHash(blockId, `${index}`);
            hashes.set(`${index}`, blockId);
            return;
          case "share": {
            const [hash] = [...hashes.keys()].slice(pick % Math.max(hashes.size, 1));
            const found = hash === undefined ? null : pool.find(hash);
            if (found === null) return;
            pool.hold(found);
            held.push(found);
          }
        }
      });
      expect(pool.numFree).toBe(numBlocks - 1 - new Set(held).size);
      for (const [hash, blockId] of hashes) expect(pool.find(hash)).toBe(blockId);
      for (const blockId of new Set(held)) {
        expect(pool.numReferences(blockId)).toBe(held.filter((each) => each === blockId).length);
      }
      for (const blockId of held) pool.release(blockId);
      expect(pool.numFree).toBe(numBlocks - 1);
    }),
    { numRuns: 300 },
  );
});
