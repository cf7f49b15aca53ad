import { array, assert, asyncProperty, integer } from "fast-check";
import { expect, test } from "vitest";

import { StoreFullError, StoreQuota } from "../../../functions/batch/store-quota.ts";

/** A store from the quota's point of view. */
function setUp(maxBytes: number) {
  const stored = { numObjects: 0, numBytes: 0 };
  const quotaOf = (maxNumFiles?: number) =>
    new StoreQuota({
      maxBytes,
      ...(maxNumFiles !== undefined && { maxNumFiles }),
      async measure() {
        const size = { ...stored };
        // Others continue while the store is measured.
        await Promise.resolve();
        return size;
      },
    });
  return { stored, quotaOf };
}

test("an upload can use the rest to the byte, and releases it when it ends without a file", async () => {
  const { quotaOf } = setUp(100);
  const quota = quotaOf();
  const first = await quota.reserve(0);
  await first.grow(100);
  const second = await quota.reserve(0);
  await expect(second.grow(1)).rejects.toThrow("all files together would have 101 bytes or more; the limit is 100,");
  first.release();
  await second.grow(100);
});

test("an upload that announces too much is rejected before it starts", async () => {
  const { stored, quotaOf } = setUp(100);
  stored.numBytes = 60;
  await expect(quotaOf().reserve(41)).rejects.toThrow(StoreFullError);
  await quotaOf().reserve(40);
});

test("files deleted during an upload make room for it", async () => {
  const { stored, quotaOf } = setUp(100);
  stored.numBytes = 80;
  const upload = await quotaOf().reserve(0);
  await upload.grow(20);
  stored.numBytes = 0;
  await expect(upload.grow(80)).resolves.toBeUndefined();
});

test("of two servers whose files would exceed the limit together, the last one is rejected", async () => {
  const { stored, quotaOf } = setUp(100);
  const uploads = [await quotaOf().reserve(0), await quotaOf().reserve(0)];
  for (const upload of uploads) await upload.grow(60);
  stored.numBytes += 60;
  await uploads[0]!.settle();
  stored.numBytes += 60;
  await expect(uploads[1]!.settle()).rejects.toThrow(StoreFullError);
});

test("empty files count too, also while they arrive", async () => {
  const { stored, quotaOf } = setUp(100);
  stored.numObjects = 2;
  const quota = quotaOf(4);
  const [first, second] = [await quota.reserve(0), await quota.reserve(0)];
  await expect(quota.reserve(0)).rejects.toThrow("With this file, there would be 5 files; the limit is 4.");
  second.release();
  const third = await quota.reserve(0);
  stored.numObjects = 4;
  await first.settle();
  stored.numObjects = 5;
  await expect(third.settle()).rejects.toThrow("With this file, there would be 5 files; the limit is 4.");
});

test("uploads share the measurements of a store with many files", async () => {
  let numMeasured = 0;
  const gate = Promise.withResolvers<void>();
  const quota = new StoreQuota({
    maxBytes: 100,
    async measure() {
      numMeasured += 1;
      await gate.promise;
      return { numObjects: 1, numBytes: 10 };
    },
  });
  const uploads = Array.from({ length: 50 }, async () => {
    const reservation = await quota.reserve(0);
    await reservation.grow(1);
    await reservation.settle();
  });
  gate.resolve();
  await Promise.all(uploads);
  expect(numMeasured).toBeLessThanOrEqual(4);
});

test("a measurement that fails is not that of the next upload", async () => {
  const outcomes = [Promise.reject(new Error("away"))];
  const nothing = { numObjects: 0, numBytes: 0 };
  const quota = new StoreQuota({ maxBytes: 100, measure: async () => outcomes.shift() ?? nothing });
  const [first, second] = [quota.reserve(0), quota.reserve(0)];
  await expect(first).rejects.toThrow("away");
  await expect(second).resolves.toBeDefined();
});

test("uploads in progress and files never exceed the limit together, and one that fits is accepted", async () => {
  const sizes = array(integer({ min: 1, max: 40 }), { maxLength: 5 });
  const property = asyncProperty(array(sizes, { maxLength: 12 }), async (uploads) => {
    const { stored, quotaOf } = setUp(100);
    const quota = quotaOf();
    let [numUnderWay, most] = [0, 0];
    const upload = async (chunks: readonly number[]): Promise<void> => {
      const reservation = await quota.reserve(0);
      let numBytes = 0;
      try {
        for (const chunk of chunks) {
          await reservation.grow(chunk);
          numBytes += chunk;
          numUnderWay += chunk;
          most = Math.max(most, stored.numBytes + numUnderWay);
        }
        numUnderWay -= numBytes;
        stored.numBytes += numBytes;
        numBytes = 0;
        await reservation.settle();
      } finally {
        numUnderWay -= numBytes;
        reservation.release();
      }
    };
    const results = await Promise.allSettled(uploads.map(upload));
    const reasons = results.flatMap((result) => (result.status === "rejected" ? [result.reason as unknown] : []));
    expect(reasons.filter((reason) => !(reason instanceof StoreFullError))).toEqual([]);
    expect(most).toBeLessThanOrEqual(100);
    const rest = await quota.reserve(0);
    await rest.grow(100 - stored.numBytes);
  });
  await expect(assert(property)).resolves.toBeUndefined();
});
