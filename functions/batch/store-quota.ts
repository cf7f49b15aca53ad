/** The limits on all files together. Uploads reserve a file and the bytes that they have received so far. */
import type { StoredSize } from "../storage/object-store.ts";

const nothing: StoredSize = { numObjects: 0, numBytes: 0 };

/** Empty files are files too: each takes a record, and time in every measurement. */
export const MAX_NUM_FILES = 100_000;

export interface StoreQuotaOptions {
  readonly maxBytes: number;
  /** Default `MAX_NUM_FILES`. */
  readonly maxNumFiles?: number;
  /** All files in the store, including those of other servers. */
  readonly measure: () => Promise<StoredSize>;
}

/** An upload would exceed a limit, or the store already does. The message says which. */
export class StoreFullError extends Error {
  override readonly name = "StoreFullError";
}

/** The reservation of one upload. Mutable. Methods throw StoreFullError and errors of measuring. */
export interface Reservation {
  /** Call it before bytes are stored. */
  grow(numBytes: number): Promise<void>;
  /**
   * Call it when all bytes are stored, before the file is published. It measures the store again, which now includes
   * files that other servers have accepted: the last one is rejected.
   */
  settle(): Promise<void>;
  /** Releases bytes that are reserved and not settled. Idempotent. */
  release(): void;
}

/**
 * Mutable; one per process. Uploads in progress in this process, together with the stored files, never exceed the
 * limit. Files that several servers publish do not exceed it either, because each measures the store before.
 */
export class StoreQuota {
  readonly #maxBytes: number;
  readonly #maxNumFiles: number;
  readonly #measureStore: StoreQuotaOptions["measure"];
  /** The last measurement, plus what uploads have settled since it started. */
  #stored = nothing;
  #reserved = nothing;
  #settled = nothing;
  #measuring: Promise<StoredSize> | null = null;
  /** Begins when the measurement under way has ended. */
  #nextMeasuring: Promise<StoredSize> | null = null;

  constructor({ maxBytes, maxNumFiles = MAX_NUM_FILES, measure }: StoreQuotaOptions) {
    this.#maxBytes = maxBytes;
    this.#maxNumFiles = maxNumFiles;
    this.#measureStore = measure;
  }

  /** @param announced Bytes that the upload is known to have; if they do not fit, it need not start. */
  async reserve(announced: number): Promise<Reservation> {
    await this.#measure();
    this.#checkRoom({ numObjects: 1, numBytes: announced });
    let own = nothing;
    const add = (size: StoredSize): void => {
      this.#reserved = sumOf(this.#reserved, size);
      own = sumOf(own, size);
    };
    const release = (): void => {
      this.#reserved = differenceOf(this.#reserved, own);
      own = nothing;
    };
    add({ numObjects: 1, numBytes: 0 });
    return {
      grow: async (numBytes) => {
        const size = { numObjects: 0, numBytes };
        // Files may have been deleted, and files settled during a measurement may be counted twice.
        if (this.#excessOf(size) !== null) await this.#measure();
        this.#checkRoom(size);
        add(size);
      },
      settle: async () => {
        this.#stored = sumOf(this.#stored, own);
        this.#settled = sumOf(this.#settled, own);
        release();
        const excess = this.#excessIn(await this.#measure());
        if (excess !== null) throw excess;
      },
      release,
    };
  }

  /** For work that will add results. Throws StoreFullError if the store has no room for another file. */
  async requireRoom(): Promise<void> {
    const { numObjects, numBytes } = await this.#measure();
    if (numBytes > this.#maxBytes) {
      throw new StoreFullError(`All files together have ${numBytes} bytes; ${this.#limitOfBytes}.`);
    }
    if (numObjects >= this.#maxNumFiles) {
      throw new StoreFullError(`There are ${numObjects} files; the limit is ${this.#maxNumFiles}.`);
    }
  }

  get #limitOfBytes(): string {
    return `the limit is ${this.#maxBytes}, which BATCH_MAX_STORE_BYTES sets`;
  }

  /** If so much more were stored. */
  #excessOf(size: StoredSize): StoreFullError | null {
    return this.#excessIn(sumOf(sumOf(this.#stored, this.#reserved), size));
  }

  #excessIn({ numObjects, numBytes }: StoredSize): StoreFullError | null {
    if (numBytes > this.#maxBytes) {
      const all = `With this file, all files together would have ${numBytes} bytes or more`;
      return new StoreFullError(`${all}; ${this.#limitOfBytes}.`);
    }
    if (numObjects <= this.#maxNumFiles) return null;
    return new StoreFullError(`With this file, there would be ${numObjects} files; the limit is ${this.#maxNumFiles}.`);
  }

  #checkRoom(size: StoredSize): void {
    const excess = this.#excessOf(size);
    if (excess !== null) throw excess;
  }

  /**
   * Resolves to what is in the store, from a measurement that begins after the call. Uploads share it, because a store
   * with many files takes a while to measure.
   */
  #measure(): Promise<StoredSize> {
    if (this.#measuring === null) return this.#beginMeasuring();
    this.#nextMeasuring ??= this.#measuring
      .catch(() => {})
      .then(() => {
        this.#nextMeasuring = null;
        return this.#beginMeasuring();
      });
    return this.#nextMeasuring;
  }

  #beginMeasuring(): Promise<StoredSize> {
    const measuring = this.#measureNow().finally(() => {
      if (this.#measuring === measuring) this.#measuring = null;
    });
    this.#measuring = measuring;
    return measuring;
  }

  async #measureNow(): Promise<StoredSize> {
    const settledBefore = this.#settled;
    const size = await this.#measureStore();
    this.#stored = sumOf(size, differenceOf(this.#settled, settledBefore));
    return size;
  }
}

function sumOf(left: StoredSize, right: StoredSize): StoredSize {
  return { numObjects: left.numObjects + right.numObjects, numBytes: left.numBytes + right.numBytes };
}

function differenceOf(left: StoredSize, right: StoredSize): StoredSize {
  return { numObjects: left.numObjects - right.numObjects, numBytes: left.numBytes - right.numBytes };
}
