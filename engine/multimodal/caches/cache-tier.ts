/** One place where the values of a cache are kept: this process's memory, or a store that replicas share. */

export type CacheTierName = "memory" | "redis";

/** Mutable counters since start; who holds them reads them live. */
export interface CacheTierStats {
  queries: number;
  hits: number;
  /** Held now, by a tier in memory; 0 for others. */
  heldBytes: number;
  readBytes: number;
  writtenBytes: number;
  /** Calls of the store that failed; those it was not troubled with are not among them. */
  errors: number;
  /** Values that were there and were refused: foreign, truncated, altered. Not among the hits. */
  refusedValues: number;
}

export interface CacheTier<Value> {
  readonly name: CacheTierName;
  readonly stats: Readonly<CacheTierStats>;
  /** By position; null where there is none. Marks what it finds as just used. Never rejects. */
  getMany(keys: readonly string[]): Promise<readonly (Value | null)[]>;
  /** Keeps what there is room for; resolves when that is done, or has failed. Never rejects. */
  setMany(entries: readonly CacheEntry<Value>[]): Promise<void>;
}

export interface CacheEntry<Value> {
  readonly key: string;
  readonly value: Value;
}

export function createTierStats(): CacheTierStats {
  return { queries: 0, hits: 0, heldBytes: 0, readBytes: 0, writtenBytes: 0, errors: 0, refusedValues: 0 };
}
