import { expect, test } from "vitest";

import { BlockSnapshots } from "../../../engine/kv/block-snapshots.ts";

function withSnapshots(...hashes: readonly string[]): BlockSnapshots {
  const snapshots = new BlockSnapshots(10, 3);
  for (const hash of hashes) snapshots.keep(hash, snapshots.take()!);
  return snapshots;
}

test("takes the row of the least recently used snapshot when no row is free", () => {
  const snapshots = withSnapshots("a", "b", "c");
  expect(snapshots.rowOf("a")).toBe(10);
  expect(snapshots.take()).toBe(11);
  expect(["a", "b", "c"].map((hash) => snapshots.has(hash))).toEqual([true, false, true]);
});

test("rows that wait for their states are not taken, and come back without one", () => {
  const snapshots = new BlockSnapshots(10, 2);
  const rows = [snapshots.take(), snapshots.take()];
  expect(rows).toEqual([10, 11]);
  expect(snapshots.take()).toBeNull();
  snapshots.release(10);
  expect(snapshots.take()).toBe(10);
});

test("a second state of the same tokens gives its row back", () => {
  const snapshots = withSnapshots("a");
  snapshots.keep("a", snapshots.take()!);
  expect(snapshots.rowOf("a")).toBe(10);
  expect([snapshots.take(), snapshots.take()]).toEqual([11, 12]);
});

test("a snapshot whose block is evicted is not found, and its row is free", () => {
  const snapshots = withSnapshots("a", "b", "c");
  snapshots.drop("b");
  snapshots.drop("never kept");
  expect(snapshots.has("b")).toBe(false);
  expect(snapshots.take()).toBe(11);
});
