import { expect, test } from "vitest";

import { EncoderCache } from "../../../engine/vision/encoder-cache.ts";

test("an image held by two sequences stays until both have released it and its room is needed", () => {
  const cache = new EncoderCache(4);
  expect(cache.tryAcquire("cat", 4)).toBe("to-encode");
  cache.store("cat", Float32Array.of(1));
  expect(cache.tryAcquire("cat", 4)).toBe("encoded");
  cache.release("cat");
  expect(cache.tryAcquire("dog", 4)).toBeNull();
  cache.release("cat");
  expect(cache.has("cat")).toBe(true);
  expect(cache.tryAcquire("dog", 4)).toBe("to-encode");
  expect(cache.has("cat")).toBe(false);
});

test("the least recently used image is evicted", () => {
  const cache = new EncoderCache(3);
  for (const mmHash of ["a", "b", "c"]) {
    cache.tryAcquire(mmHash, 1);
    cache.store(mmHash, new Float32Array(1));
    cache.release(mmHash);
  }
  cache.tryAcquire("a", 1);
  cache.release("a");
  cache.tryAcquire("d", 1);
  expect(["a", "b", "c"].filter((mmHash) => cache.has(mmHash))).toEqual(["a", "c"]);
});

test("nothing is evicted for an image that does not fit anyway", () => {
  const cache = new EncoderCache(2);
  cache.tryAcquire("kept", 1);
  cache.store("kept", new Float32Array(1));
  cache.release("kept");
  expect(cache.tryAcquire("too large", 3)).toBeNull();
  expect(cache.has("kept")).toBe(true);
});

test("an image whose encoding failed is removed with its last reference", () => {
  const cache = new EncoderCache(2);
  cache.tryAcquire("broken", 2);
  expect(cache.tryAcquire("broken", 2)).toBe("to-encode");
  cache.release("broken");
  cache.release("broken");
  expect(cache.numEmbeddings).toBe(0);
});

test("an image with another number of embeddings takes the place of the one with its hash, when that is released", () => {
  const evicted: unknown[] = [];
  const cache = new EncoderCache(8, (embeddings) => evicted.push(embeddings));
  const first = new Float32Array(2);
  cache.tryAcquire("named", 2);
  cache.store("named", first);
  expect(cache.tryAcquire("named", 4)).toBeNull();
  cache.release("named");
  expect(cache.tryAcquire("named", 4)).toBe("to-encode");
  expect(evicted).toEqual([first]);
  expect(cache.numEmbeddings).toBe(4);
  // The encoding of the first one ends late.
  expect(cache.tryStore("named", 2, first)).toBe(false);
  expect(cache.has("named")).toBe(false);
});
