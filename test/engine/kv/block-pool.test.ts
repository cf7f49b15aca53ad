import * as fc from "fast-check";
import { expect, test } from "vitest";

import { BlockPool, SCRATCH_BLOCK_ID } from "../../../engine/kv/block-pool.ts";
import { PoolAccount } from "./pool-account.ts";

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

test("any sequence of operations leaves no block lost, held without a holder or kept under a wrong hash", () => {
  // Few, so that blocks with equal tokens are common.
  const hashes = ["a", "b", "c", "d"];
  const operation = fc.record({
    kind: fc.constantFrom("allocate", "allocate", "release", "hash", "share"),
    pick: fc.nat({ max: 1000 }),
    hash: fc.constantFrom(...hashes),
  });
  let numEvicted = 0;
  let numTakenOver = 0;
  fc.assert(
    fc.property(
      fc.integer({ min: 2, max: 6 }),
      fc.array(operation, { maxLength: 120, size: "max" }),
      (numBlocks, operations) => {
        const account = new PoolAccount(numBlocks);
        for (const { kind, pick, hash } of operations) {
          const blockId = account.heldBlock(pick);
          if (kind === "allocate") account.allocate();
          else if (kind === "share") account.share(hash);
          else if (blockId !== undefined && kind === "release") account.release(blockId);
          else if (blockId !== undefined) account.setHash(blockId, hash);
          account.check(numBlocks, hashes);
        }
        account.releaseAll();
        account.check(numBlocks, hashes);
        numEvicted += account.evicted.length;
        numTakenOver += account.numTakenOver;
      },
    ),
    { numRuns: 300 },
  );
  expect(numEvicted).toBeGreaterThan(10);
  expect(numTakenOver).toBeGreaterThan(10);
});
