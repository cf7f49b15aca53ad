/** The store that replicas share, as the caches need it; Redis is one. */

export interface ByteStoreEntry {
  readonly key: string;
  readonly bytes: Uint8Array;
  /** The entry is gone after this. */
  readonly timeToLiveSeconds: number;
}

/**
 * Calls made while there is no connection reject at once; nothing is queued. A call that is not answered may stay
 * pending, since the caller has a timeout.
 */
export interface ByteStore {
  /** One round trip; by position, null where there is nothing. */
  getMany(keys: readonly string[]): Promise<readonly (Uint8Array | null)[]>;
  /**
   * One round trip.
   *
   * @throws Any error (as a rejection) if the store refused an entry. The others are kept.
   */
  setMany(entries: readonly ByteStoreEntry[]): Promise<void>;
  /** Told, for its log, that the caller has stopped waiting for a call, which may still be answered. */
  onGivenUp?(timeoutMs: number): void;
  /** Ends the connection. Idempotent. */
  close(): Promise<void>;
}
