/** Values in the store that replicas share, as checksummed bytes. */
import { setImmediate as nextTurn } from "node:timers/promises";

import type { ByteStoreEntry } from "./byte-store.ts";
import { createTierStats } from "./cache-tier.ts";
import type { CacheTier } from "./cache-tier.ts";
import type { GuardedStore } from "./guarded-store.ts";
import type { ValueCodec } from "./value-codec.ts";

export interface SharedTierOptions<Value> {
  readonly store: GuardedStore;
  /** Prefix of every key; contains the deployment, the kind of values and the version. */
  readonly keyPrefix: string;
  readonly codec: ValueCodec<Value>;
  readonly timeToLiveSeconds: number;
  /** Larger values are not written. */
  readonly maxValueBytes: number;
}

/**
 * Encodes and decodes one value per turn of the event loop, because a value may have megabytes. A value contains its whole
 * key: kinds of values have equal keys behind their prefixes.
 */
export function createSharedTier<Value>(options: SharedTierOptions<Value>): CacheTier<Value> {
  const { store, keyPrefix, codec, timeToLiveSeconds, maxValueBytes } = options;
  const stats = createTierStats();

  function read(key: string, stored: Uint8Array): Value | null {
    stats.readBytes += stored.length;
    // One copy, out of a reply that also contains other values: aligned, and in memory that the engine thread can read.
    const bytes = new Uint8Array(new SharedArrayBuffer(stored.length));
    bytes.set(stored);
    const value = codec.decode(keyPrefix + key, bytes);
    if (value === null) stats.refusedValues += 1;
    else stats.hits += 1;
    return value;
  }

  return {
    name: "redis",
    stats,
    async getMany(keys) {
      stats.queries += keys.length;
      const stored = await store.getMany(
        keys.map((key) => keyPrefix + key),
        stats,
      );
      const values: (Value | null)[] = [];
      let numRead = 0;
      for (const [index, bytes] of stored.entries()) {
        if (bytes !== null && numRead++ > 0) await nextTurn();
        values.push(bytes === null ? null : read(keys[index]!, bytes));
      }
      return values;
    },
    async setMany(entries) {
      const encoded: ByteStoreEntry[] = [];
      for (const { key, value } of entries) {
        if (!store.state.canWrite) return;
        // Let the request that made the value continue first.
        await nextTurn();
        const wholeKey = keyPrefix + key;
        const bytes = codec.encode(wholeKey, value);
        if (bytes.length <= maxValueBytes) encoded.push({ key: wholeKey, bytes, timeToLiveSeconds });
      }
      if (encoded.length > 0) await store.setMany(encoded, stats);
    },
  };
}
