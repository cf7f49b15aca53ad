/** One level of a cache: this process's memory, or a store that replicas share. */

export type CacheTierName = "memory" | "redis";

/** Mutable counters since start; holders see live values. */
export interface CacheTierStats {
  queries: number;
  hits: number;
  /** Bytes held now by a memory tier; 0 for others. */
  heldBytes: number;
  readBytes: number;
  writtenBytes: number;
  /** Failed calls to the store; skipped calls do not count. */
  errors: number;
  /** Values that were found but rejected: foreign, truncated or altered. They do not count as hits. */
  refusedValues: number;
}

export interface CacheTier<Value> {
  readonly name: CacheTierName;
  readonly stats: Readonly<CacheTierStats>;
  /** By position; null for missing values. Marks found values as just used. Never rejects. */
  getMany(keys: readonly string[]): Promise<readonly (Value | null)[]>;
  /** Stores what there is room for. Resolves when that is done or has failed. Never rejects. */
  setMany(entries: readonly CacheEntry<Value>[]): Promise<void>;
}

export interface CacheEntry<Value> {
  readonly key: string;
  readonly value: Value;
}

export function createTierStats(): CacheTierStats {
  return { queries: 0, hits: 0, heldBytes: 0, readBytes: 0, writtenBytes: 0, errors: 0, refusedValues: 0 };
}
