import { afterAll, beforeAll, expect, test } from "vitest";
import { defaultCacheConfig, MultiModalCaches } from "../../../engine/multimodal/caches/multimodal-caches.ts";
import type { CacheConfig } from "../../../engine/config.ts";
import { createLogger } from "../../../functions/logger.ts";
import { createRedisStore } from "../../../functions/redis-store.ts";
import { startRedisServer } from "../../support/redis-server.ts";
import type { RedisServer } from "../../support/redis-server.ts";
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

test("replicas of one model share what they know of images; equal keys of different caches stay apart", async () => {
  const [first, second] = [await replica(), await replica()];
  first.encoder.setMany([{ key: "a", value: embeddings }]);
  first.source.setMany([{ key: "a", value: known }]);
  await first.settled();
  expect(await second.encoder.getMany(["a", "b"])).toEqual([embeddings, null]);
  expect(await second.source.getMany(["a"])).toEqual([known]);
  expect(await second.processor.cache.getMany(["a"])).toEqual([null]);
  // The second time they are in the replica's own memory.
  await second.encoder.getMany(["a"]);
  const { tiers, store } = second.report;
  const encoder = tiers.filter(({ cache }) => cache === "encoder");
  expect(encoder.map(({ tier, stats: { queries, hits } }) => [tier, queries, hits])).toEqual([
    ["memory", 3, 1],
    ["redis", 2, 1],
  ]);
  expect(store).toEqual({ canRead: true, canWrite: true });
  await first.close();
  await second.close();
});

test("caches of another prefix, and so of another deployment, share nothing", async () => {
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
