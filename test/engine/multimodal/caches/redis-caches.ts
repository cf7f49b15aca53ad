/** Caches over a real Redis, as in two replicas of the service. */
import { setTimeout as delay } from "node:timers/promises";

import type { ByteStore } from "../../../../engine/multimodal/caches/byte-store.ts";
import type { CacheTier } from "../../../../engine/multimodal/caches/cache-tier.ts";
import { GuardedStore } from "../../../../engine/multimodal/caches/guarded-store.ts";
import { ProcessorCache } from "../../../../engine/multimodal/caches/processor-cache.ts";
import { createSharedTier } from "../../../../engine/multimodal/caches/shared-tier.ts";
import { TieredCache } from "../../../../engine/multimodal/caches/tiered-cache.ts";
import { createLogger } from "../../../../functions/logger.ts";
import { createRedisStore } from "../../../../functions/redis/redis-store.ts";
import { numbersCodec } from "./numbers.ts";

export interface RedisCacheOptions {
  readonly keyPrefix?: string;
  readonly commandTimeoutMs?: number;
  readonly maxValueBytes?: number;
  readonly timeToLiveSeconds?: number;
  /** Of `createRedisStore`. */
  readonly minConnectionAgeMs?: number;
  readonly maxSilenceMs?: number;
  /** In front of the tier in Redis. */
  readonly fasterTiers?: readonly CacheTier<Float32Array>[];
}

export interface RedisCache extends AsyncDisposable {
  readonly processorCache: ProcessorCache<Float32Array, TieredCache<Float32Array>>;
  readonly tier: CacheTier<Float32Array>;
  readonly store: GuardedStore;
  /** What the store guards. */
  readonly connection: ByteStore;
  /** Lines that the connection logged. */
  readonly log: readonly string[];
}

/** Resolves once the store answers; a service would not wait. */
export async function connected(store: ByteStore): Promise<ByteStore> {
  while (
    await store
      .getMany(["probe"])
      .catch(() => null)
      .then((values) => values === null)
  )
    await delay(2);
  return store;
}

/** For a server that is running and accepts the client; otherwise use `createUnconnectedRedisCache`. */
export async function createRedisCache(url: string, options: RedisCacheOptions = {}): Promise<RedisCache> {
  const cache = createUnconnectedRedisCache(url, options);
  await connected(cache.connection);
  return cache;
}

export function createUnconnectedRedisCache(url: string, options: RedisCacheOptions = {}): RedisCache {
  const { keyPrefix = "test:", commandTimeoutMs = 2_000, maxValueBytes = 2 ** 20, fasterTiers = [] } = options;
  const log: string[] = [];
  const logger = createLogger({ level: "debug", write: (line) => void log.push(line) });
  const connection = createRedisStore(url, logger, options);
  const store = new GuardedStore(connection, {
    commandTimeoutMs,
    probeKey: `${keyPrefix}probe`,
  });
  const tier = createSharedTier({
    store,
    keyPrefix,
    codec: numbersCodec,
    timeToLiveSeconds: options.timeToLiveSeconds ?? 600,
    maxValueBytes,
  });
  return {
    processorCache: new ProcessorCache(new TieredCache([...fasterTiers, tier])),
    tier,
    store,
    connection,
    log,
    async [Symbol.asyncDispose]() {
      await store.close();
    },
  };
}
