/** Values in this process's memory, evicted by least recent use. Several caches share one budget of bytes. */
import { createTierStats } from "./cache-tier.ts";
import type { CacheEntry, CacheTier, CacheTierStats } from "./cache-tier.ts";
import type { ValueCodec } from "./value-codec.ts";

interface HeldEntry {
  readonly byteLength: number;
  readonly drop: () => void;
}

/** Mutable. The shared budget of memory tiers, and the order in which their entries were used. */
export class MemoryPool {
  readonly #maxBytes: number;
  /** In the order of last use. */
  readonly #entries = new Map<string, HeldEntry>();
  #heldBytes = 0;

  /** @param maxBytes 0 keeps nothing. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  touch(id: string): void {
    const entry = this.#entries.get(id);
    if (entry === undefined) return;
    this.#entries.delete(id);
    this.#entries.set(id, entry);
  }

  /** Makes room and stores the entry. Returns false if it is larger than the budget. `drop` is called on eviction. */
  tryHold(id: string, entry: HeldEntry): boolean {
    this.#drop(id);
    if (entry.byteLength > this.#maxBytes) return false;
    this.#entries.set(id, entry);
    this.#heldBytes += entry.byteLength;
    for (const oldest of this.#entries.keys()) {
      if (this.#heldBytes <= this.#maxBytes) break;
      this.#drop(oldest);
    }
    return true;
  }

  #drop(id: string): void {
    const entry = this.#entries.get(id);
    if (entry === undefined) return;
    this.#entries.delete(id);
    this.#heldBytes -= entry.byteLength;
    entry.drop();
  }
}

export interface MemoryTierOptions<Value> {
  readonly pool: MemoryPool;
  /** Separates the tier's keys from those of the pool's other tiers. */
  readonly name: string;
  readonly codec: Pick<ValueCodec<Value>, "byteLengthOf">;
}

/** Values are returned as they were set, without a copy: do not write to them. */
export function createMemoryTier<Value>({ pool, name, codec }: MemoryTierOptions<Value>): CacheTier<Value> {
  const values = new Map<string, Value>();
  const stats: CacheTierStats = createTierStats();
  const poolId = (key: string): string => `${name}:${key}`;

  function hold({ key, value }: CacheEntry<Value>): void {
    const byteLength = codec.byteLengthOf(value);
    const drop = (): void => {
      values.delete(key);
      stats.heldBytes -= byteLength;
    };
    if (!pool.tryHold(poolId(key), { byteLength, drop })) return;
    values.set(key, value);
    stats.heldBytes += byteLength;
    stats.writtenBytes += byteLength;
  }

  return {
    name: "memory",
    stats,
    async getMany(keys) {
      return keys.map((key) => {
        stats.queries += 1;
        const value = values.get(key);
        if (value === undefined) return null;
        stats.hits += 1;
        stats.readBytes += codec.byteLengthOf(value);
        pool.touch(poolId(key));
        return value;
      });
    },
    async setMany(entries) {
      for (const entry of entries) hold(entry);
    },
  };
}
