/**
 * The contract of every combination of cache tiers. A new tier is one file, one line of registration and one call of
 * this suite.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";

import type { ProcessorCache } from "../../engine/multimodal/caches/processor-cache.ts";
import type { TieredCache } from "../../engine/multimodal/caches/tiered-cache.ts";
import { numbersOf } from "../engine/multimodal/caches/numbers.ts";

export interface ProcessorCacheFixture {
  /** An empty cache of `numbersCodec` values over the fixture's tiers, with room for at least 64 KiB. */
  createCache(): Promise<ProcessorCache<Float32Array, TieredCache<Float32Array>>>;
  close(): Promise<void>;
}

const never = new AbortController().signal;

export function testProcessorCache(name: string, createFixture: () => Promise<ProcessorCacheFixture>): void {
  describe(`the processor cache contract: ${name}`, () => {
    let fixture: ProcessorCacheFixture;
    let cache: ProcessorCache<Float32Array, TieredCache<Float32Array>>;
    /** The keys of each call for work. */
    let processed: (readonly string[])[];

    const processMissing = async (missing: readonly string[]): Promise<Float32Array[]> => {
      processed.push(missing);
      await Promise.resolve();
      return missing.map((key) => numbersOf(key));
    };
    const values = async (keys: readonly string[]): Promise<readonly Float32Array[]> => {
      const got = await cache.getOrProcess(keys, processMissing, never);
      await cache.cache.settled();
      return got;
    };
    const expected = (keys: readonly string[]): Float32Array[] => keys.map((key) => numbersOf(key));

    beforeAll(async () => {
      fixture = await createFixture();
    });
    beforeEach(async () => {
      cache = await fixture.createCache();
      processed = [];
    });
    afterAll(async () => {
      await fixture.close();
    });

    test("is empty at first and returns stored values by position", async () => {
      expect(await cache.cache.getMany(["a", "b"])).toEqual([null, null]);
      cache.cache.setMany([{ key: "b", value: numbersOf("b") }]);
      await cache.cache.settled();
      expect(await cache.cache.getMany(["a", "b", "b"])).toEqual([null, numbersOf("b"), numbersOf("b")]);
      expect(await cache.cache.getMany([])).toEqual([]);
    });

    test("processes only missing images, in one batch, in the order of the request", async () => {
      expect(await values(["a", "b"])).toEqual(expected(["a", "b"]));
      expect(await values(["c", "a", "d", "b"])).toEqual(expected(["c", "a", "d", "b"]));
      expect(await values(["d", "c"])).toEqual(expected(["d", "c"]));
      expect(processed).toEqual([
        ["a", "b"],
        ["c", "d"],
      ]);
    });

    test("processes an image once that occurs twice in a request", async () => {
      expect(await values(["a", "b", "a"])).toEqual(expected(["a", "b", "a"]));
      expect(processed).toEqual([["a", "b"]]);
    });

    test("processes an image once that ten concurrent requests need, even if they need others too", async () => {
      const requests = Array.from({ length: 10 }, (_, index) => ["a", "b", `only ${index}`]);
      const got = await Promise.all(requests.map((keys) => cache.getOrProcess(keys, processMissing, never)));
      expect(got).toEqual(requests.map(expected));
      expect(processed.flat().sort()).toEqual(["a", "b", ...requests.map((keys) => keys[2]!)].sort());
    });

    test("finishes requests that wait for each other's images", async () => {
      const orders = ["abc", "cab", "bca", "cba"].map((keys) => keys.split(""));
      const got = await Promise.all(orders.map((keys) => cache.getOrProcess(keys, processMissing, never)));
      expect(got).toEqual(orders.map(expected));
      expect(processed.flat().sort()).toEqual(["a", "b", "c"]);
    });

    test("does not cache failures", async () => {
      const failure = new Error("a broken image");
      await expect(cache.getOrProcess(["a"], () => Promise.reject(failure), never)).rejects.toBe(failure);
      expect(await values(["a"])).toEqual(expected(["a"]));
    });

    test("does not pass the failure of one request on to requests that waited for it", async () => {
      const failure = new Error("another of its images is broken");
      const failing = cache.getOrProcess(["a", "broken"], () => Promise.reject(failure), never);
      const waiting = cache.getOrProcess(["a"], processMissing, never);
      await expect(failing).rejects.toBe(failure);
      expect(await waiting).toEqual(expected(["a"]));
      expect(processed).toEqual([["a"]]);
    });

    test("releases a request that is aborted while it waits for another's work", async () => {
      const { promise: held, resolve } = Promise.withResolvers<void>();
      const working = cache.getOrProcess(
        ["a"],
        async (missing) => {
          await held;
          return processMissing(missing);
        },
        never,
      );
      const controller = new AbortController();
      const waiting = cache.getOrProcess(["a"], processMissing, controller.signal);
      controller.abort();
      await expect(waiting).rejects.toMatchObject({ name: "EngineError", code: "aborted" });
      resolve();
      expect(await working).toEqual(expected(["a"]));
    });

    test("counts queries, hits and bytes", async () => {
      await values(["a", "b"]);
      await values(["a", "c"]);
      const fastest = cache.cache.tiers[0]!;
      expect(fastest.stats).toMatchObject({ queries: 4, hits: 1, errors: 0, refusedValues: 0 });
      expect(fastest.stats.writtenBytes).toBeGreaterThanOrEqual(3 * 1024);
      expect(fastest.stats.readBytes).toBeGreaterThanOrEqual(1024);
    });
  });
}
