import { expect, test, vi } from "vitest";

import { randomHex, randomSeed, randomUuid, renewRandomness } from "../../engine/random-ids.ts";

// A generator that always returns the same bytes, as it does in all processes restored from one snapshot.
vi.mock("node:crypto", () => ({ randomBytes: (numBytes: number) => Buffer.alloc(numBytes, 0x5a) }));

test("processes that are restored from one snapshot draw different ids and seeds once they are renewed", () => {
  const draw = () => [randomUuid(), randomHex(16), randomSeed()] as const;
  const first = draw();
  expect(draw()).toEqual(first);
  renewRandomness();
  const second = draw();
  renewRandomness();
  const third = draw();
  for (const index of [0, 1, 2] as const) {
    expect(new Set([first[index], second[index], third[index]]).size).toBe(3);
  }
});

test("ids are version 4 UUIDs and seeds are safe integers, before and after", () => {
  for (let round = 0; round < 50; round++) {
    renewRandomness();
    expect(randomUuid()).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(randomHex(16)).toMatch(/^[0-9a-f]{32}$/);
    expect(Number.isSafeInteger(randomSeed())).toBe(true);
    expect(randomSeed()).toBeGreaterThanOrEqual(0);
  }
});
