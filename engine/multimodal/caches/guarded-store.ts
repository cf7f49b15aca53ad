/**
 * Protects callers from the shared store: they get an answer in bounded time and never an error. Reads and writes fail
 * separately, because a full or read-only store still answers reads.
 */
import { Availability } from "./availability.ts";
import type { ByteStore, ByteStoreEntry } from "./byte-store.ts";
import type { CacheTierStats } from "./cache-tier.ts";

export interface GuardedStoreOptions {
  /** Maximum time that a request waits for the store. */
  readonly commandTimeoutMs: number;
  /** A key that probes may read and write. */
  readonly probeKey: string;
}

export interface StoreState {
  readonly canRead: boolean;
  readonly canWrite: boolean;
}

/** Requests do not wait for writes, but one that takes this long shows that the store cannot accept any. */
const WRITE_TIMEOUT_MS = 2_000;
/** Limit for values being written to the store. Further values are not written. */
const MAX_PENDING_WRITE_BYTES = 64 * 2 ** 20;
const probeBytes = Uint8Array.of(1);
const PROBE_TIME_TO_LIVE_SECONDS = 60;

/** Mutable; owns the store. */
export class GuardedStore {
  readonly #store: ByteStore;
  readonly #commandTimeoutMs: number;
  readonly #reads: Availability;
  readonly #writes: Availability;
  #pendingWriteBytes = 0;

  constructor(store: ByteStore, { commandTimeoutMs, probeKey }: GuardedStoreOptions) {
    this.#store = store;
    this.#commandTimeoutMs = commandTimeoutMs;
    this.#reads = new Availability(async () => {
      await this.#within(commandTimeoutMs, store.getMany([probeKey]));
    });
    const probe = { key: probeKey, bytes: probeBytes, timeToLiveSeconds: PROBE_TIME_TO_LIVE_SECONDS };
    this.#writes = new Availability(() => this.#within(commandTimeoutMs, store.setMany([probe])));
  }

  get state(): StoreState {
    return { canRead: this.#reads.isAvailable, canWrite: this.#reads.isAvailable && this.#writes.isAvailable };
  }

  /**
   * By position; all null while the store is unavailable. The call that detects this waits for one command timeout and
   * counts an error; later calls do not wait.
   */
  async getMany(keys: readonly string[], stats: CacheTierStats): Promise<readonly (Uint8Array | null)[]> {
    if (this.state.canRead) {
      try {
        const values = await this.#within(this.#commandTimeoutMs, this.#store.getMany(keys));
        this.#reads.reportSuccess();
        return values;
      } catch {
        stats.errors += 1;
        this.#reads.reportFailure();
      }
    }
    return keys.map(() => null);
  }

  /** Writes what the store accepts now. Waits at most for the write timeout, and keeps nothing for later. */
  async setMany(entries: readonly ByteStoreEntry[], stats: CacheTierStats): Promise<void> {
    const numBytes = entries.reduce((sum, { bytes }) => sum + bytes.length, 0);
    if (!this.state.canWrite || this.#pendingWriteBytes + numBytes > MAX_PENDING_WRITE_BYTES) return;
    this.#pendingWriteBytes += numBytes;
    try {
      await this.#within(WRITE_TIMEOUT_MS, this.#store.setMany(entries));
      stats.writtenBytes += numBytes;
      this.#writes.reportSuccess();
    } catch {
      stats.errors += 1;
      this.#writes.reportFailure();
    } finally {
      this.#pendingWriteBytes -= numBytes;
    }
  }

  disconnect(): void {
    this.#store.disconnect?.();
  }

  async connect(): Promise<void> {
    await this.#store.connect?.();
  }

  async close(): Promise<void> {
    this.#reads[Symbol.dispose]();
    this.#writes[Symbol.dispose]();
    await this.#store.close();
  }

  async #within<Value>(timeoutMs: number, work: Promise<Value>): Promise<Value> {
    const { promise: tooLate, reject } = Promise.withResolvers<never>();
    let isSettled = false;
    const giveUp = (): void => {
      if (isSettled) return;
      this.#store.onGivenUp?.(timeoutMs);
      reject(new Error(`No answer within ${timeoutMs} ms.`));
    };
    // After a busy turn of the event loop, timers run before sockets, where the answer may already be.
    const timer = setTimeout(() => setImmediate(giveUp), timeoutMs);
    try {
      return await Promise.race([work, tooLate]);
    } finally {
      isSettled = true;
      clearTimeout(timer);
    }
  }
}
