import { expect, test } from "vitest";

import { releaseUnusedMemory } from "../../../engine/index.ts";

/** Too small to be mapped from the system one by one: the C library keeps them. */
const NUM_BYTES = 64 * 1024;
const NUM_BUFFERS = 2000;

test("memory of garbage returns to the system, although the C library would keep it", async () => {
  await releaseUnusedMemory();
  const before = process.memoryUsage.rss();
  const kept = fillBuffers();
  const used = process.memoryUsage.rss();
  await releaseUnusedMemory();
  const after = process.memoryUsage.rss();
  expect(kept.every((buffer) => buffer[0] === 1)).toBe(true);
  expect(used - before).toBeGreaterThan(0.9 * NUM_BUFFERS * NUM_BYTES);
  expect(used - after).toBeGreaterThan(0.8 * NUM_BUFFERS * NUM_BYTES);
});

/** Leaves every hundredth buffer reachable, so that the freed memory does not end the heap. */
function fillBuffers(): Uint8Array[] {
  const buffers = Array.from({ length: NUM_BUFFERS }, () => new Uint8Array(NUM_BYTES).fill(1));
  return buffers.filter((_, index) => index % 100 === 99);
}
