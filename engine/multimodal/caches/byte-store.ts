/** The shared store of the replicas, as the caches need it; for example Redis. */

export interface ByteStoreEntry {
  readonly key: string;
  readonly bytes: Uint8Array;
  /** The entry expires after this time. */
  readonly timeToLiveSeconds: number;
}

/**
 * Calls made while there is no connection reject at once; nothing is queued. A call that is not answered may stay
 * pending, since the caller has a timeout.
 */
export interface ByteStore {
  /** One round trip. By position; null for missing entries. */
  getMany(keys: readonly string[]): Promise<readonly (Uint8Array | null)[]>;
  /**
   * One round trip.
   *
   * @throws Any error (as a rejection) if the store refused an entry. The others are kept.
   */
  setMany(entries: readonly ByteStoreEntry[]): Promise<void>;
  /** Tells the store, for its log, that the caller no longer waits for a call, which may still be answered. */
  onGivenUp?(timeoutMs: number): void;
  /** Closes the connection. Idempotent. */
  close(): Promise<void>;
}
