/**
 * Bounds the bytes of fetched pictures, videos and documents that all requests hold together, from their arrival until they
 * are processed.
 */
import { EngineError } from "../contract/errors.ts";
import { FairQueue } from "../fair-queue.ts";
import type { QueuedWork } from "../fair-queue.ts";

/** Bytes are counted in portions, so that a chunk of a body costs an addition. */
const PORTION_BYTES = 1024 ** 2;

interface Portion extends QueuedWork {
  readonly holder: HeldBytes;
}

/** Mutable: what all requests hold. A request of a few hundred bytes may name hundreds of megabytes. */
export class FetchedBytes {
  readonly #maxBytes: number;
  readonly #portions: FairQueue<Portion>;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
    this.#portions = new FairQueue({ maxNumWaiting: Number.POSITIVE_INFINITY, maxWaitingBytes: maxBytes });
  }

  /** Begins to count the bytes of a request. */
  open(tenant: string): HeldBytes {
    return new HeldBytes(tenant, this.#portions, () => {
      const message = `The pictures, videos and documents that requests fetch at the moment have more than ${this.#maxBytes} bytes together.`;
      return new EngineError("queue_full", `${message} Send the request again later.`);
    });
  }
}

/** Mutable: what one request holds, until this is disposed of. */
export class HeldBytes implements Disposable {
  readonly #tenant: string;
  readonly #portions: FairQueue<Portion>;
  readonly #refusal: () => EngineError;
  readonly #refused = new AbortController();
  #own: Portion[] = [];
  #numBytes = 0;

  constructor(tenant: string, portions: FairQueue<Portion>, refusal: () => EngineError) {
    this.#tenant = tenant;
    this.#portions = portions;
    this.#refusal = refusal;
  }

  /** Aborted with EngineError `queue_full` if the request has to give up its bytes. Its fetches must end then. */
  get refused(): AbortSignal {
    return this.#refused.signal;
  }

  /**
   * Counts bytes that have arrived. If all requests hold too many, the one with the largest part of them, of the tenant
   * with the largest part, is refused. A request that is alone keeps what it has: its own limits bound it.
   */
  add(numBytes: number): void {
    this.#numBytes += numBytes;
    while (!this.#refused.signal.aborted && this.#numBytes > this.#own.length * PORTION_BYTES) {
      const portion = { tenant: this.#tenant, request: this, holder: this, cost: 1, numBytes: PORTION_BYTES };
      this.#own.push(portion);
      for (const { holder } of this.#portions.add(portion)) holder.#refuse();
    }
  }

  [Symbol.dispose](): void {
    for (const portion of this.#own.splice(0)) this.#portions.remove(portion);
  }

  #refuse(): void {
    if (this.#refused.signal.aborted) return;
    this[Symbol.dispose]();
    this.#refused.abort(this.#refusal());
  }
}
