/** A cache over tiers, fastest first. Values found in a slower tier are copied into the faster ones. */
import type { CacheEntry, CacheTier } from "./cache-tier.ts";

export interface ValueCache<Value> {
  /** By position; null for missing values. Never rejects. */
  getMany(keys: readonly string[]): Promise<readonly (Value | null)[]>;
  /** Does not wait for slow tiers. */
  setMany(entries: readonly CacheEntry<Value>[]): void;
  /** Resolves when everything set so far has been written or has failed. */
  settled(): Promise<void>;
}

/** Mutable. Without tiers, it keeps nothing. */
export class TieredCache<Value> implements ValueCache<Value> {
  readonly tiers: readonly CacheTier<Value>[];
  readonly #writes = new Set<Promise<void>>();

  constructor(tiers: readonly CacheTier<Value>[]) {
    this.tiers = tiers;
  }

  /**
   * By position; null if no tier has the value. Calls each tier at most once, for all keys that faster ones lack.
   * Everything found is marked as just used before anything is stored. Never rejects.
   */
  async getMany(keys: readonly string[]): Promise<readonly (Value | null)[]> {
    const values = new Map<string, Value>();
    for (const [index, tier] of this.tiers.entries()) {
      const wanted = [...new Set(keys)].filter((key) => !values.has(key));
      if (wanted.length === 0) break;
      const found: CacheEntry<Value>[] = [];
      for (const [position, value] of (await tier.getMany(wanted)).entries()) {
        if (value !== null) found.push({ key: wanted[position]!, value });
      }
      for (const { key, value } of found) values.set(key, value);
      this.#write(this.tiers.slice(0, index), found);
    }
    return keys.map((key) => values.get(key) ?? null);
  }

  /** Memory has the values when this returns. Slower tiers get them later, and no request waits for them. */
  setMany(entries: readonly CacheEntry<Value>[]): void {
    this.#write(this.tiers, entries);
  }

  async settled(): Promise<void> {
    await Promise.all(this.#writes);
  }

  #write(tiers: readonly CacheTier<Value>[], entries: readonly CacheEntry<Value>[]): void {
    if (entries.length === 0) return;
    for (const tier of tiers) {
      const write = tier.setMany(entries).finally(() => this.#writes.delete(write));
      this.#writes.add(write);
    }
  }
}
