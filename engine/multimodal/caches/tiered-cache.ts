/** A cache over tiers, the fastest first: what a slower one has is put into the faster ones. */
import type { CacheEntry, CacheTier } from "./cache-tier.ts";

export interface ValueCache<Value> {
  /** By position; null where there is none. Never rejects. */
  getMany(keys: readonly string[]): Promise<readonly (Value | null)[]>;
  /** Never waits for anything slow. */
  setMany(entries: readonly CacheEntry<Value>[]): void;
  /** Resolves when everything set so far has been written, or has failed to be. */
  settled(): Promise<void>;
}

/** Mutable; without tiers it keeps nothing. */
export class TieredCache<Value> implements ValueCache<Value> {
  readonly tiers: readonly CacheTier<Value>[];
  readonly #writes = new Set<Promise<void>>();

  constructor(tiers: readonly CacheTier<Value>[]) {
    this.tiers = tiers;
  }

  /**
   * By position; null where no tier has the value. One call of each tier that is asked, for all keys that faster ones
   * lack; all that is found has been marked as just used before anything is put in. Never rejects.
   */
  async getMany(keys: readonly string[]): Promise<readonly (Value | null)[]> {
    const values = new Map<string, Value>();
    for (const [index, tier] of this.tiers.entries()) {
      const wanted = [...new Set(keys)].filter((key) => !values.has(key));
      if (wanted.length === 0) break;
      const found: CacheEntry<Value>[] = [];
      for (const [position, value] of (await tier.getMany(wanted)).entries()) {
        if (value !== null) found.push({ key: wanted[position], value });
      }
      for (const { key, value } of found) values.set(key, value);
      this.#write(this.tiers.slice(0, index), found);
    }
    return keys.map((key) => values.get(key) ?? null);
  }

  /** Memory has the values when this returns, slower tiers some time later: nobody waits for them. */
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
