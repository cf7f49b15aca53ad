/**
 * Bounds the tensors of pictures that all requests hold until their prompts are computed. Those of waiting requests would
 * otherwise fill the memory: a picture of a few kilobytes may have tensors of a hundred megabytes.
 */
import { EngineError } from "../contract/errors.ts";
import type { ProcessedItem } from "./processed-item.ts";

/** Mutable: what all requests hold. */
export class HeldTensors {
  readonly #maxBytes: number;
  readonly #requests = new Set<RequestTensors>();
  /** By memory, which caches share among requests: who holds it. The first one pays for it. */
  readonly #shared = new Map<ArrayBufferLike, SharedMemory>();

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Begins to count the tensors of a request. */
  open(tenant: string): RequestTensors {
    const request = new RequestTensors(tenant, this);
    this.#requests.add(request);
    return request;
  }

  /** Only for `RequestTensors`. */
  hold(buffer: ArrayBufferLike, request: RequestTensors): void {
    const { byteLength: numBytes } = buffer;
    const memory = this.#shared.get(buffer) ?? { numBytes, holders: new Set() };
    this.#shared.set(buffer, memory);
    if (memory.holders.size === 0) request.paidBytes += numBytes;
    memory.holders.add(request);
  }

  /** Only for `RequestTensors`. */
  release(buffer: ArrayBufferLike, request: RequestTensors): void {
    const memory = this.#shared.get(buffer);
    if (memory === undefined) return;
    const { numBytes, holders } = memory;
    const [payer] = holders;
    holders.delete(request);
    if (payer === request) {
      request.paidBytes -= numBytes;
      const [next] = holders;
      if (next !== undefined) next.paidBytes += numBytes;
    }
    if (holders.size === 0) this.#shared.delete(buffer);
  }

  /** Only for `RequestTensors`. */
  end(request: RequestTensors): void {
    this.#requests.delete(request);
  }

  /**
   * While there is too much, refuses the request that holds most, of the tenant that holds most. A request that is alone
   * keeps what it has: its own limits bound it.
   */
  makeRoom(): void {
    for (;;) {
      const paying = [...this.#requests].filter(({ paidBytes }) => paidBytes > 0);
      const numBytes = paying.reduce((sum, { paidBytes }) => sum + paidBytes, 0);
      if (paying.length < 2 || numBytes <= this.#maxBytes) return;
      const ofTenants = new Map<string, number>();
      for (const { tenant, paidBytes } of paying) ofTenants.set(tenant, (ofTenants.get(tenant) ?? 0) + paidBytes);
      const shareOf = ({ tenant }: RequestTensors): number => ofTenants.get(tenant) ?? 0;
      const [largest] = paying
        .toReversed()
        .sort((left, right) => shareOf(right) - shareOf(left) || right.paidBytes - left.paidBytes);
      const message = `The processed pictures and frames of videos of requests that wait have ${numBytes} bytes together; the limit is ${this.#maxBytes}.`;
      largest?.refuse(new EngineError("queue_full", `${message} Send the request again later.`));
    }
  }
}

interface SharedMemory {
  readonly numBytes: number;
  readonly holders: Set<RequestTensors>;
}

/** Mutable: what one request holds, until this is disposed of. */
export class RequestTensors implements Disposable {
  readonly tenant: string;
  /** Written by `HeldTensors`. */
  paidBytes = 0;
  readonly #all: HeldTensors;
  readonly #refused = new AbortController();
  #buffers = new Set<ArrayBufferLike>();

  constructor(tenant: string, all: HeldTensors) {
    this.tenant = tenant;
    this.#all = all;
  }

  /** Aborted with EngineError `queue_full` if the request has to give up its tensors. It must end then. */
  get refused(): AbortSignal {
    return this.#refused.signal;
  }

  /** Counts the tensors of one picture, before they are part of an item. */
  add(tensors: ProcessedItem["tensors"]): void {
    this.#hold(tensors);
    this.#all.makeRoom();
  }

  /** Counts these items, and nothing else any more. */
  replace(items: readonly Pick<ProcessedItem, "tensors">[]): void {
    const earlier = this.#buffers;
    this.#buffers = new Set();
    for (const { tensors } of items) this.#hold(tensors);
    for (const buffer of earlier) if (!this.#buffers.has(buffer)) this.#all.release(buffer, this);
    this.#all.makeRoom();
  }

  [Symbol.dispose](): void {
    for (const buffer of this.#buffers) this.#all.release(buffer, this);
    this.#buffers.clear();
    this.#all.end(this);
  }

  /** Only for `HeldTensors`. */
  refuse(error: EngineError): void {
    this[Symbol.dispose]();
    this.#refused.abort(error);
  }

  #hold(tensors: ProcessedItem["tensors"]): void {
    if (this.#refused.signal.aborted) return;
    for (const { data } of tensors.values()) {
      this.#buffers.add(data.buffer);
      this.#all.hold(data.buffer, this);
    }
  }
}
