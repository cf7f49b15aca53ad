/** The limit on the bytes of all files together. Uploads reserve the bytes that they have received so far. */

export interface StoreQuotaOptions {
  readonly maxBytes: number;
  /** Bytes of all files in the store, including those of other servers. */
  readonly measure: () => Promise<number>;
}

/** An upload would exceed the limit. */
export class StoreFullError extends Error {
  override readonly name = "StoreFullError";
  /** Bytes of all files, had the upload been accepted. */
  readonly numBytes: number;
  readonly maxBytes: number;

  constructor(numBytes: number, maxBytes: number) {
    super(`All files together would have ${numBytes} bytes; the limit is ${maxBytes}.`);
    this.numBytes = numBytes;
    this.maxBytes = maxBytes;
  }
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
  readonly #options: StoreQuotaOptions;
  /** The last measurement, plus what uploads have settled since it started. */
  #numStored = 0;
  #numReserved = 0;
  #numSettled = 0;
  #measuring: Promise<number> | null = null;
  /** Begins when the measurement under way has ended. */
  #nextMeasuring: Promise<number> | null = null;

  constructor(options: StoreQuotaOptions) {
    this.#options = options;
  }

  /** @param announced Bytes that the upload is known to have; if they do not fit, it need not start. */
  async reserve(announced: number): Promise<Reservation> {
    await this.#measure();
    this.#checkRoom(announced);
    let numReserved = 0;
    const release = (): void => {
      this.#numReserved -= numReserved;
      numReserved = 0;
    };
    return {
      grow: async (numBytes) => {
        // Files may have been deleted, and files settled during a measurement may be counted twice.
        if (!this.#hasRoom(numBytes)) await this.#measure();
        this.#checkRoom(numBytes);
        this.#numReserved += numBytes;
        numReserved += numBytes;
      },
      settle: async () => {
        this.#numStored += numReserved;
        this.#numSettled += numReserved;
        release();
        const numBytes = await this.#measure();
        if (numBytes > this.#options.maxBytes) throw new StoreFullError(numBytes, this.#options.maxBytes);
      },
      release,
    };
  }

  #hasRoom(numBytes: number): boolean {
    return this.#numStored + this.#numReserved + numBytes <= this.#options.maxBytes;
  }

  #checkRoom(numBytes: number): void {
    if (this.#hasRoom(numBytes)) return;
    throw new StoreFullError(this.#numStored + this.#numReserved + numBytes, this.#options.maxBytes);
  }

  /**
   * Resolves to the bytes in the store, from a measurement that begins after the call. Uploads share it, because a store
   * with many files takes a while to measure.
   */
  #measure(): Promise<number> {
    if (this.#measuring === null) return this.#beginMeasuring();
    this.#nextMeasuring ??= this.#measuring
      .catch(() => {})
      .then(() => {
        this.#nextMeasuring = null;
        return this.#beginMeasuring();
      });
    return this.#nextMeasuring;
  }

  #beginMeasuring(): Promise<number> {
    const measuring = this.#measureNow().finally(() => {
      if (this.#measuring === measuring) this.#measuring = null;
    });
    this.#measuring = measuring;
    return measuring;
  }

  async #measureNow(): Promise<number> {
    const numSettledBefore = this.#numSettled;
    const numBytes = await this.#options.measure();
    this.#numStored = numBytes + this.#numSettled - numSettledBefore;
    return numBytes;
  }
}
