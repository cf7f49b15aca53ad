/** All caches of images between requests: of their sources, their processing and their encoding. */
import type { CacheConfig } from "../../contract/config.ts";
import { SOURCE_CACHE_VERSION, knownImageCodec } from "../../images/source-cache.ts";
import type { KnownImage } from "../../images/source-cache.ts";
import { KNOWN_VIDEO_VERSION, knownVideoCodec } from "../../videos/known-video.ts";
import type { KnownVideo } from "../../videos/known-video.ts";
import type { ProcessedItem } from "../processed-item.ts";
import type { ByteStore } from "./byte-store.ts";
import type { CacheTier, CacheTierName, CacheTierStats } from "./cache-tier.ts";
import {
  DividedItemCache,
  EMBEDDINGS_VERSION,
  embeddingsCodec,
  itemPlacementCodec,
  itemTensorsCodec,
  PROCESSED_ITEM_VERSION,
  toSharedItem,
} from "./divided-items.ts";
import type { Embeddings } from "./divided-items.ts";
import { GuardedStore } from "./guarded-store.ts";
import type { StoreState } from "./guarded-store.ts";
import { MemoryPool, createMemoryTier } from "./memory-tier.ts";
import { ProcessorCache } from "./processor-cache.ts";
import { RECORD_VERSION } from "./record-codec.ts";
import { createSharedTier } from "./shared-tier.ts";
import { TieredCache } from "./tiered-cache.ts";
import type { ValueCodec } from "./value-codec.ts";

/** `pixels` are the processor's output for images without known embeddings. */
export type CacheName = "processor" | "pixels" | "encoder" | "source" | "video";

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
  /** By `knownVideoKey`. */
  readonly video: TieredCache<KnownVideo>;
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
        const valuePrefix = `${keyPrefix}:${name}:${RECORD_VERSION}.${version}:`;
        tiers.push(createSharedTier({ ...config, store: this.#store, keyPrefix: valuePrefix, codec }));
      }
      return new TieredCache(tiers);
    };
    const placements = createCache("processor", PROCESSED_ITEM_VERSION, itemPlacementCodec);
    const pixels = createCache("pixels", PROCESSED_ITEM_VERSION, itemTensorsCodec);
    this.encoder = createCache("encoder", EMBEDDINGS_VERSION, embeddingsCodec);
    this.source = createCache("source", SOURCE_CACHE_VERSION, knownImageCodec);
    this.video = createCache("video", KNOWN_VIDEO_VERSION, knownVideoCodec);
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
      ...report("video", this.video),
    ];
  }

  get report(): CacheReport {
    return { tiers: this.#tiers, store: this.#store?.state ?? null };
  }

  /** Resolves when everything set so far has been written or has failed. */
  async settled(): Promise<void> {
    await Promise.all([this.processor.cache, this.encoder, this.source, this.video].map((cache) => cache.settled()));
  }

  /** Waits for pending writes, then closes the connection to the shared store until `connect`. */
  async disconnect(): Promise<void> {
    await this.settled();
    this.#store?.disconnect();
  }

  async connect(): Promise<void> {
    await this.#store?.connect();
  }

  /** Abandons pending writes. Idempotent. */
  async close(): Promise<void> {
    await this.#store?.close();
  }
}
