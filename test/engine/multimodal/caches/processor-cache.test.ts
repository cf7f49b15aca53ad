import { describe, expect, test } from "vitest";

import { createMemoryTier, MemoryPool } from "../../../../engine/multimodal/caches/memory-tier.ts";
import { ProcessorCache } from "../../../../engine/multimodal/caches/processor-cache.ts";
import { TieredCache } from "../../../../engine/multimodal/caches/tiered-cache.ts";
import { testProcessorCache } from "../../../contracts/processor-cache.ts";
import { startRedisServer } from "../../../support/servers/redis-server.ts";
import { numbersCodec, numbersOf } from "./numbers.ts";
import { createRedisCache } from "./redis-caches.ts";
import type { RedisCache } from "./redis-caches.ts";

function memoryTier(pool: MemoryPool, name = "numbers") {
  return createMemoryTier<Float32Array>({ pool, name, codec: numbersCodec });
}

testProcessorCache("memory", async () => ({
  createCache: async () => new ProcessorCache(new TieredCache([memoryTier(new MemoryPool(65_536))])),
  close: async () => {},
}));

for (const hasMemory of [false, true]) {
  testProcessorCache(hasMemory ? "memory, then Redis" : "Redis", async () => {
    const server = await startRedisServer();
    const caches: RedisCache[] = [];
    return {
      async createCache() {
        const fasterTiers = hasMemory ? [memoryTier(new MemoryPool(65_536))] : [];
        const cache = await createRedisCache(server.url, { keyPrefix: `test ${caches.length}:`, fasterTiers });
        caches.push(cache);
        return cache.processorCache;
      },
      async close() {
        for (const cache of caches) await cache[Symbol.asyncDispose]();
        await server.kill();
      },
    };
  });
}

describe("the memory tier", () => {
  const entry = (key: string, length = 256) => ({ key, value: new Float32Array(length) });
  const heldKeys = async (cache: TieredCache<Float32Array>, keys: readonly string[]) => {
    const values = await cache.getMany(keys);
    return keys.filter((_, index) => values[index] !== null);
  };

  test("evicts the least recently used values, by bytes", async () => {
    const cache = new TieredCache([memoryTier(new MemoryPool(3 * 1024))]);
    cache.setMany([entry("a"), entry("b"), entry("c")]);
    await cache.getMany(["a"]);
    cache.setMany([entry("d")]);
    expect(await heldKeys(cache, ["a", "b", "c", "d"])).toEqual(["a", "c", "d"]);
    cache.setMany([entry("e", 512)]);
    expect(await heldKeys(cache, ["a", "c", "d", "e"])).toEqual(["d", "e"]);
    expect(cache.tiers[0]!.stats.heldBytes).toBe(3 * 1024);
  });

  test("keeps the hits of a request, however old, while its misses are added", async () => {
    const cache = new ProcessorCache(new TieredCache([memoryTier(new MemoryPool(3 * 1024))]));
    const process = async (keys: readonly string[]) => keys.map((key) => numbersOf(key));
    const { signal } = new AbortController();
    await cache.getOrProcess(["old", "b", "c"], process, signal);
    await cache.getOrProcess(["new", "newer", "old"], process, signal);
    expect(await heldKeys(cache.cache, ["old", "b", "c", "new", "newer"])).toEqual(["old", "new", "newer"]);
  });

  test("does not cache a value larger than the whole budget, and keeps the others", async () => {
    const cache = new ProcessorCache(new TieredCache([memoryTier(new MemoryPool(2 * 1024))]));
    const { signal } = new AbortController();
    cache.cache.setMany([entry("a")]);
    const large = new Float32Array(1_024).fill(3);
    expect(await cache.getOrProcess(["large"], async () => [large], signal)).toEqual([large]);
    expect(await heldKeys(cache.cache, ["a", "large"])).toEqual(["a"]);
  });

  test("replaces a value without counting its bytes twice", async () => {
    const cache = new TieredCache([memoryTier(new MemoryPool(2 * 1024))]);
    cache.setMany([entry("a", 128), entry("a", 256), entry("b", 256)]);
    expect(await heldKeys(cache, ["a", "b"])).toEqual(["a", "b"]);
    expect(cache.tiers[0]!.stats.heldBytes).toBe(2 * 1024);
  });

  test("several caches share one budget, and their equal keys are separate", async () => {
    const pool = new MemoryPool(2 * 1024);
    const [left, right] = ["left", "right"].map((name) => new TieredCache([memoryTier(pool, name)]));
    left!.setMany([entry("a", 128)]);
    right!.setMany([entry("a", 256)]);
    expect((await left!.getMany(["a"]))[0]).toHaveLength(128);
    expect((await right!.getMany(["a"]))[0]).toHaveLength(256);
    right!.setMany([entry("b", 256)]);
    expect(await heldKeys(left!, ["a"])).toEqual([]);
    expect(left!.tiers[0]!.stats.heldBytes).toBe(0);
  });

  test("a budget of zero keeps nothing", async () => {
    const cache = new TieredCache([memoryTier(new MemoryPool(0))]);
    cache.setMany([entry("a")]);
    expect(await heldKeys(cache, ["a"])).toEqual([]);
  });
});
