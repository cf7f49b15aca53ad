/** The shared store of the replicas, as the caches need it; for example Redis. */

export interface ByteStoreEntry {
  readonly key: string;
  readonly bytes: Uint8Array;
  /** The entry expires after this time. */
  readonly timeToLiveSeconds: number;
}

/**
 * Calls without a connection reject at once; nothing is queued. An unanswered call may stay pending, so the caller sets
 * a time limit.
 */
export interface ByteStore {
  /** One round trip. By position; null for missing entries. */
  getMany(keys: readonly string[]): Promise<readonly (Uint8Array | null)[]>;
  /**
   * One round trip.
   *
   * @throws Any error (as a rejection) if any entry was rejected; the others are stored.
   */
  setMany(entries: readonly ByteStoreEntry[]): Promise<void>;
  /** Tells the store, for its log, that the caller no longer waits for a call, which may still be answered. */
  onGivenUp?(timeoutMs: number): void;
  /** Closes the connection until `connect`. */
  disconnect?(): void;
  /** Opens the connection again. Resolves when it is open, or will be tried again in the background. */
  connect?(): Promise<void>;
  /** Closes the connection. Idempotent. */
  close(): Promise<void>;
}
