/** Copies out of a pool of 4 images on the CPU. */
import { beforeEach, expect, test } from "vitest";

import { Tensor } from "../../../engine/runtime/tensor.ts";
import { EmbeddingCopies, MAX_PENDING_COPIES } from "../../../engine/vision/embedding-copies.ts";
import { EncoderCache } from "../../../engine/vision/encoder-cache.ts";
import { ViewedPool } from "../../../engine/vision/feature-pool.ts";

const width = 64;
let pool: ViewedPool;
let encoderCache: EncoderCache;
let copies: EmbeddingCopies;

function createParts(numImages = 4): void {
  const allocateTensor = (elementType: "float32", shape: readonly number[]): Tensor<"float32"> =>
    Tensor.fromTypedArray(elementType, new Float32Array(shape.reduce((product, size) => product * size)), shape);
  const session = { device: "cpu", allocateTensor } as ConstructorParameters<typeof ViewedPool>[0];
  pool = new ViewedPool(session, { width, numRows: numImages, maxRunRows: 1 });
  encoderCache = new EncoderCache(numImages, (embeddings) => {
    if ("firstRow" in embeddings) pool.release(embeddings);
  });
  copies = new EmbeddingCopies({ pool, encoderCache, imageWidth: width });
}

beforeEach(() => createParts());

/** Encodes an image that no request needs any more. */
function encode(mmHash: string, value: number): void {
  encoderCache.tryAcquire(mmHash, 1);
  const rows = pool.take(1)!;
  using view = pool.view(rows);
  view.copyFrom(new Float32Array(width).fill(value));
  encoderCache.store(mmHash, rows);
  encoderCache.release(mmHash);
  copies.add(mmHash, rows);
}

/** Evicts all images without a reference. */
function numEvictable(): number {
  const numFree = 4 - encoderCache.numEmbeddings;
  let numTaken = 0;
  while (encoderCache.tryAcquire(`other ${numTaken}`, 1) !== null) numTaken++;
  for (let index = 0; index < numTaken; index++) encoderCache.release(`other ${index}`);
  return numTaken - numFree;
}

test("an image keeps its rows until it is copied, and can be evicted then", async () => {
  encode("a", 1);
  encode("b", 2);
  expect(copies.isPending).toBe(true);
  expect(numEvictable()).toBe(0);
  await expect.poll(() => copies.isPending).toBe(false);
  const finished = copies.takeFinished();
  expect(finished.map(({ mmHash, embeddings }) => [mmHash, embeddings.shape, embeddings.data[0]])).toEqual([
    ["a", [1, width], 1],
    ["b", [1, width], 2],
  ]);
  expect(copies.takeFinished()).toEqual([]);
  expect(numEvictable()).toBe(2);
});

test("features on the host are finished at once", () => {
  copies.add("host", new Float32Array(width).fill(3));
  expect(copies.isPending).toBe(false);
  expect(copies.takeFinished()).toMatchObject([{ mmHash: "host", embeddings: { shape: [1, width] } }]);
});

test("images beyond the limit are not copied, and hold no rows", async () => {
  createParts(MAX_PENDING_COPIES + 2);
  for (let index = 0; index < MAX_PENDING_COPIES + 2; index++) encode(`${index}`, index);
  await expect.poll(() => copies.isPending).toBe(false);
  expect(copies.takeFinished()).toHaveLength(MAX_PENDING_COPIES);
});

test("closing drops work that has not started, and waits for running work", async () => {
  for (const [index, mmHash] of ["a", "b", "c"].entries()) encode(mmHash, index);
  const settled = copies.settle();
  expect(copies.isPending).toBe(true);
  expect(numEvictable()).toBe(2);
  await settled;
  expect(copies.isPending).toBe(false);
  expect(copies.takeFinished().map(({ mmHash }) => mmHash)).toEqual(["a"]);
  expect(numEvictable()).toBe(1);
});

test("a copy that fails gives its rows back, and the next one is made", async () => {
  const beyond = { firstRow: 1000, numRows: 1 };
  encoderCache.tryAcquire("beyond", 1);
  encoderCache.store("beyond", beyond);
  copies.add("beyond", beyond);
  encode("b", 1);
  await expect.poll(() => copies.isPending).toBe(false);
  expect(copies.takeFinished().map(({ mmHash }) => mmHash)).toEqual(["b"]);
  encoderCache.release("beyond");
  expect(() => encoderCache.release("beyond")).toThrow("image beyond is used without a reference");
});
