/** The limit on the bytes of all files together: uploads reserve what they have received so far. */

export interface StoreQuotaOptions {
  readonly maxBytes: number;
  /** Bytes of all files in the store, those of other servers included. */
  readonly measure: () => Promise<number>;
}

/** An upload would pass the limit. */
export class StoreFullError extends Error {
  override readonly name = "StoreFullError";
  /** Of all files, had the upload been taken. */
  readonly numBytes: number;
  readonly maxBytes: number;

  constructor(numBytes: number, maxBytes: number) {
    super(`All files together would have ${numBytes} bytes; the limit is ${maxBytes}.`);
    this.numBytes = numBytes;
    this.maxBytes = maxBytes;
  }
}

/** Of one upload. Mutable. Methods throw StoreFullError and what measuring throws. */
export interface Reservation {
  /** To be called before bytes are stored. */
  grow(numBytes: number): Promise<void>;
  /**
   * To be called when all bytes are stored, before the file is published. It measures the store again, which then has
   * the files that other servers took meanwhile: whoever comes last is refused.
   */
  settle(): Promise<void>;
  /** Gives up what is reserved and not settled. Idempotent. */
  release(): void;
}

/**
 * Mutable; one per process. Uploads under way in this process never have more than the limit together with the files
 * that are stored. Files that several servers publish never pass it either, as each measures the store before.
 */
export class StoreQuota {
  readonly #options: StoreQuotaOptions;
  /** As measured last, and what uploads have settled since that measurement began. */
  #numStored = 0;
  #numReserved = 0;
  #numSettled = 0;

  constructor(options: StoreQuotaOptions) {
    this.#options = options;
  }

  /** @param announced Bytes that the upload is known to have; where they do not fit, it need not begin. */
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
        // Files may have been deleted, and some may be counted twice that were settled during a measurement.
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

  /** Resolves to the bytes in the store. */
  async #measure(): Promise<number> {
    const numSettledBefore = this.#numSettled;
    const numBytes = await this.#options.measure();
    this.#numStored = numBytes + this.#numSettled - numSettledBefore;
    return numBytes;
  }
}
