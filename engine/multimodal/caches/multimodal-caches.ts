/** All caches of images between requests: of their sources, their processing and their encoding. */
import { knownImageCodec, sourceCacheVersion } from "../../images/source-cache.ts";
import type { CacheConfig } from "../../contract/config.ts";
import type { KnownImage } from "../../images/source-cache.ts";
import type { ProcessedItem } from "../processed-item.ts";
import type { ByteStore } from "./byte-store.ts";
import type { CacheTier, CacheTierName, CacheTierStats } from "./cache-tier.ts";
import { embeddingsCodec, embeddingsVersion } from "./embeddings-codec.ts";
import type { Embeddings } from "./embeddings-codec.ts";
import { GuardedStore } from "./guarded-store.ts";
import type { StoreState } from "./guarded-store.ts";
import { createMemoryTier, MemoryPool } from "./memory-tier.ts";
import { DividedItemCache } from "./divided-item-cache.ts";
import { itemPlacementCodec, itemTensorsCodec, processedItemVersion } from "./processed-item-codec.ts";
import { ProcessorCache } from "./processor-cache.ts";
import { recordVersion } from "./record-codec.ts";
import { toSharedItem } from "./shared-item.ts";
import { createSharedTier } from "./shared-tier.ts";
import { TieredCache } from "./tiered-cache.ts";
import type { ValueCodec } from "./value-codec.ts";

/**
 * A quarter of a GiB holds the pixels of 190 images of 336 x 336, or of 5,000 of the shipped checkpoint's. That is
 * enough for the repeats of a replica with a few requests per second; Redis, which outlives replicas, holds the rest.
 */
export const defaultCacheConfig: CacheConfig = {
  maxMemoryBytes: 2 ** 28,
  timeToLiveSeconds: 86_400,
  maxValueBytes: 2 ** 25,
  commandTimeoutMs: 50,
  keyPrefix: "fovea",
};

/** `pixels` are the processor's output for images without known embeddings. */
export type CacheName = "processor" | "pixels" | "encoder" | "source";

export interface CacheTierReport {
  readonly cache: CacheName;
  readonly tier: CacheTierName;
  /** Live. */
  readonly stats: Readonly<CacheTierStats>;
}

export interface CacheReport {
  readonly tiers: readonly CacheTierReport[];
  /** Null without a shared store. */
  readonly store: StoreState | null;
}

/** Mutable; owns the store. */
export class MultiModalCaches {
  /** By `mmHash`. */
  readonly processor: ProcessorCache<ProcessedItem>;
  /** By `mmHash`. */
  readonly encoder: TieredCache<Embeddings>;
  /** By `sourceCacheKey`. */
  readonly source: TieredCache<KnownImage>;
  readonly #store: GuardedStore | null;
  readonly #tiers: readonly CacheTierReport[];

  /** @param store Null if replicas share nothing. */
  constructor(config: CacheConfig, store: ByteStore | null) {
    const { commandTimeoutMs, keyPrefix } = config;
    this.#store = store === null ? null : new GuardedStore(store, { commandTimeoutMs, probeKey: `${keyPrefix}:probe` });
    const pool = new MemoryPool(config.maxMemoryBytes);

    const createCache = <Value>(name: CacheName, version: number, codec: ValueCodec<Value>): TieredCache<Value> => {
      const tiers: CacheTier<Value>[] = [];
      if (config.maxMemoryBytes > 0) tiers.push(createMemoryTier({ pool, name, codec }));
      if (this.#store !== null) {
        const valuePrefix = `${keyPrefix}:${name}:${recordVersion}.${version}:`;
        tiers.push(createSharedTier({ ...config, store: this.#store, keyPrefix: valuePrefix, codec }));
      }
      return new TieredCache(tiers);
    };
    const placements = createCache("processor", processedItemVersion, itemPlacementCodec);
    const pixels = createCache("pixels", processedItemVersion, itemTensorsCodec);
    this.encoder = createCache("encoder", embeddingsVersion, embeddingsCodec);
    this.source = createCache("source", sourceCacheVersion, knownImageCodec);
    this.processor = new ProcessorCache(
      new DividedItemCache({ placements, pixels, embeddings: this.encoder }),
      toSharedItem,
    );
    const report = (cache: CacheName, { tiers }: TieredCache<unknown>): CacheTierReport[] =>
      tiers.map(({ name, stats }) => ({ cache, tier: name, stats }));
    this.#tiers = [
      ...report("processor", placements),
      ...report("pixels", pixels),
      ...report("encoder", this.encoder),
      ...report("source", this.source),
    ];
  }

  get report(): CacheReport {
    return { tiers: this.#tiers, store: this.#store?.state ?? null };
  }

  /** Resolves when everything set so far has been written or has failed. */
  async settled(): Promise<void> {
    await Promise.all([this.processor.cache, this.encoder, this.source].map((cache) => cache.settled()));
  }

  /** Abandons pending writes. Idempotent. */
  async close(): Promise<void> {
    await this.#store?.close();
  }
}
