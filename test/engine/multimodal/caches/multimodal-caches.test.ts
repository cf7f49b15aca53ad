import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { CacheConfig } from "../../../../engine/contract/config.ts";
import { defaultCacheConfig } from "../../../../engine/contract/default-limits.ts";
import { MultiModalCaches } from "../../../../engine/multimodal/caches/multimodal-caches.ts";
import { embeddingsField } from "../../../../engine/multimodal/processed-item.ts";
import type { ProcessedItem } from "../../../../engine/multimodal/processed-item.ts";
import { createLogger } from "../../../../functions/logger.ts";
import { createRedisStore } from "../../../../functions/redis/redis-store.ts";
import { startRedisServer } from "../../../support/servers/redis-server.ts";
import type { RedisServer } from "../../../support/servers/redis-server.ts";
import { connected } from "./redis-caches.ts";

let server: RedisServer;

beforeAll(async () => {
  server = await startRedisServer();
});
afterAll(async () => {
  await server.kill();
});

const embeddings = { elementType: "float32", shape: [2, 2], data: Float32Array.of(1, 2, 3, 4) } as const;
const known = { validator: '"etag"', contentHash: "1".repeat(64) };

async function replica(config: Partial<CacheConfig> = {}): Promise<MultiModalCaches> {
  const logger = createLogger({ level: "debug", write: () => {} });
  const commandTimeoutMs = 2_000;
  const store = await connected(createRedisStore(server.url, logger));
  return new MultiModalCaches({ ...defaultCacheConfig, commandTimeoutMs, ...config }, store);
}

test("replicas of one model share image data, and equal keys of different caches are separate", async () => {
  const [first, second] = [await replica(), await replica()];
  first.encoder.setMany([{ key: "a", value: embeddings }]);
  first.source.setMany([{ key: "a", value: known }]);
  await first.settled();
  expect(await second.encoder.getMany(["a", "b"])).toEqual([embeddings, null]);
  expect(await second.source.getMany(["a"])).toEqual([known]);
  expect(await second.processor.cache.getMany(["a"])).toEqual([null]);
  // The replica has also looked up its embeddings, which are now in its own memory.
  await second.encoder.getMany(["a"]);
  const { tiers, store } = second.report;
  const encoder = tiers.filter(({ cache }) => cache === "encoder");
  expect(encoder.map(({ tier, stats: { queries, hits } }) => [tier, queries, hits])).toEqual([
    ["memory", 4, 2],
    ["redis", 2, 1],
  ]);
  expect(store).toEqual({ canRead: true, canWrite: true });
  await first.close();
  await second.close();
});

/** An item of two embeddings, with pixels and a grid. */
const item: ProcessedItem = {
  tensors: new Map([
    ["pixel_values", { elementType: "float32", shape: [300], data: new Float32Array(300).fill(7) }],
    ["image_grid_thw", { elementType: "int64", shape: [3], data: BigInt64Array.of(1n, 2n, 4n) }],
  ]),
  promptUpdates: [
    {
      mode: "replacement",
      target: { kind: "tokens", tokenIds: [7] },
      content: { full: [5, 7, 7, 6], isEmbed: [false, true, true, false] },
    },
  ],
};

describe("for an image that another replica has processed", () => {
  const numGets = (): number =>
    Number(/cmdstat_mget:calls=(\d+)/.exec(server.command("info", "commandstats"))?.[1] ?? 0);
  const statsOf = ({ report }: MultiModalCaches, cache: string) =>
    report.tiers.find((tier) => tier.cache === cache && tier.tier === "redis")!.stats;

  async function replicasThatShare(keyPrefix: string, encoded: typeof embeddings | null) {
    const [first, second] = [await replica({ keyPrefix }), await replica({ keyPrefix })];
    first.processor.cache.setMany([{ key: "a", value: item }]);
    if (encoded !== null) first.encoder.setMany([{ key: "a", value: encoded }]);
    await first.settled();
    await first.close();
    server.command("config", "resetstat");
    return second;
  }

  test("embeddings and prompt updates are read, and pixels are not", async () => {
    await using second = disposable(await replicasThatShare("encoded", embeddings));
    const [found] = await second.caches.processor.getMany(["a"]);
    expect(found?.promptUpdates).toEqual(item.promptUpdates);
    expect([...found!.tensors]).toEqual([
      ["image_grid_thw", item.tensors.get("image_grid_thw")],
      [embeddingsField, embeddings],
    ]);
    expect(numGets()).toBe(2);
    expect(statsOf(second.caches, "pixels")).toMatchObject({ queries: 0, readBytes: 0 });
    // Both are in memory now.
    expect(await second.caches.processor.getMany(["a"])).toEqual([found]);
    expect(numGets()).toBe(2);
  });

  test("pixels are read if its embeddings are missing or have the wrong count", async () => {
    await using without = disposable(await replicasThatShare("pixels", null));
    expect(await without.caches.processor.getMany(["a", "b"])).toEqual([item, null]);
    expect(statsOf(without.caches, "pixels")).toMatchObject({ queries: 1, hits: 1 });
    const tooMany = { elementType: "float32", shape: [3, 2], data: new Float32Array(6) } as const;
    await using other = disposable(await replicasThatShare("others", tooMany as never));
    expect(await other.caches.processor.getMany(["a"])).toEqual([item]);
  });

  test("an item without pixels and without embeddings is a miss", async () => {
    await using second = disposable(await replicasThatShare("torn", null));
    server.command("eval", "redis.call('del', unpack(redis.call('keys', 'torn:pixels:*')))", "0");
    expect(await second.caches.processor.getMany(["a"])).toEqual([null]);
  });
});

function disposable(caches: MultiModalCaches): AsyncDisposable & { readonly caches: MultiModalCaches } {
  return { caches, [Symbol.asyncDispose]: () => caches.close() };
}

test("caches with another prefix, and so of another deployment, share nothing", async () => {
  const [first, second] = [await replica(), await replica({ keyPrefix: "other" })];
  first.source.setMany([{ key: "apart", value: known }]);
  await first.settled();
  expect(await second.source.getMany(["apart"])).toEqual([null]);
  expect(server.command("keys", "fovea:source:*:apart")).not.toBe("");
  await first.close();
  await second.close();
});

test("without memory and store, nothing is kept and nothing fails", async () => {
  const caches = new MultiModalCaches({ ...defaultCacheConfig, maxMemoryBytes: 0 }, null);
  caches.source.setMany([{ key: "a", value: known }]);
  await caches.settled();
  expect(await caches.source.getMany(["a"])).toEqual([null]);
  expect(caches.report).toEqual({ tiers: [], store: null });
  await caches.close();
});
