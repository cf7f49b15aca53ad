/**
 * Receives request bodies: bounds their number and their memory, evicts the slowest when there is no room, and parses short
 * ones directly and long ones on a separate thread.
 */
import { extname } from "node:path";
import { getHeapStatistics } from "node:v8";
import type { Piscina } from "piscina";

import { parseBodyBytes } from "./bounded-json.ts";
import type { ParsedJson } from "./bounded-json.ts";
import { HttpError } from "./errors.ts";
import { decodeContent, receiveBody } from "./received-body.ts";

/** An ordinary body arrives within milliseconds, so this many at once come from slow senders. */
export const MAX_NUM_BODIES = 1024;
/** All bodies together may hold as many bytes as this many bodies of maximum length. */
export const NUM_LONGEST_BODIES = 8;
/** All bodies together may hold this much in any case. */
export const MIN_ROOM_BYTES = 64 * 1024 ** 2;
/**
 * Otherwise, they hold no more than this part of the largest heap, which is itself half of a small container's memory.
 * They are outside of the heap.
 */
const MAX_ROOM_OF_HEAP = 0.5;
/** A body up to this length is never rejected for lack of memory: a question without pictures. */
const FREE_BYTES = 64 * 1024;
/**
 * Part of the heap for the bodies of requests that are being answered. Pictures stay in it as text until their answer is
 * complete, and a process whose heap is full ends at once.
 */
const SHARE_OF_HEAP = 0.5;
/** A younger body is never evicted, because its rate is not known yet. */
const FRESH_MS = 1000;
/** When bodies are compared, a byte that arrived this long ago counts half. */
const HALF_LIFE_MS = 1000;
/** Parsing 1 MiB takes 2 to 10 ms, less than starting a thread does; parsing 32 MiB takes 100 to 200 ms. */
const MAX_INLINE_BYTES = 1024 ** 2;
/** The thread ends after this time, because an idle replica should not hold its memory. */
const IDLE_TIMEOUT_MS = 30_000;

export interface BodyIntakeOptions {
  /** Length of the longest body that any route accepts. */
  readonly maxBodyBytes: number;
  readonly idleTimeoutMs: number;
  /** When it is aborted, all bodies in progress end with its reason. */
  readonly drainSignal: AbortSignal;
  /** Default `MAX_NUM_BODIES`. */
  readonly maxNumBodies?: number;
  /** Of all bodies that are kept until their answers are complete. Default: half of the largest heap. */
  readonly maxKeptBytes?: number;
  /** Clock in milliseconds for the rates of bodies. Default `performance.now`. */
  readonly now?: () => number;
}

/** Bytes that bodies of up to `maxBodyBytes`, which is always at most this, may hold together. */
export function roomForBodies(maxBodyBytes: number, heapBytes = getHeapStatistics().heap_size_limit): number {
  const mostBytes = Math.min(NUM_LONGEST_BODIES * maxBodyBytes, Math.floor(heapBytes * MAX_ROOM_OF_HEAP));
  return Math.max(mostBytes, maxBodyBytes, MIN_ROOM_BYTES);
}

/** Owns the thread that parses long bodies. Mutable; one per process. */
export class BodyIntake {
  readonly #idleTimeoutMs: number;
  readonly #drainSignal: AbortSignal;
  readonly #maxNumBodies: number;
  readonly #maxHeldBytes: number;
  readonly #maxKeptBytes: number;
  readonly #now: () => number;
  readonly #bodies = new Set<IncomingBody>();
  /** Bytes of the bodies of requests that are not answered yet. */
  readonly #kept = new Map<Request, number>();
  readonly #parser = new JsonParser();
  #numHeldBytes = 0;
  #numKeptBytes = 0;

  constructor(options: BodyIntakeOptions) {
    const { maxBodyBytes, idleTimeoutMs, drainSignal, maxNumBodies = MAX_NUM_BODIES } = options;
    this.#now = options.now ?? (() => performance.now());
    this.#idleTimeoutMs = idleTimeoutMs;
    this.#drainSignal = drainSignal;
    this.#maxNumBodies = maxNumBodies;
    this.#maxHeldBytes = roomForBodies(maxBodyBytes);
    this.#maxKeptBytes = options.maxKeptBytes ?? getHeapStatistics().heap_size_limit * SHARE_OF_HEAP;
    drainSignal.addEventListener("abort", () => {
      for (const body of this.#bodies) body.end(drainSignal.reason);
    });
  }

  /** Bodies that are arriving or being parsed. */
  get numBodies(): number {
    return this.#bodies.size;
  }

  /** Decoded bytes of all these bodies in memory. */
  get numHeldBytes(): number {
    return this.#numHeldBytes;
  }

  /**
   * Reads, decodes and parses the body. When there are too many bodies, or they hold too much memory, the body that
   * received the fewest bytes lately ends with 408, so that slow senders cannot lock out fast ones. When all bodies are
   * younger than a second, the new one is rejected with 503. The body counts as kept until `forget`; when those of others
   * leave no room for it, it is rejected with 429. Throws HttpError 408, 413, 415, 429 or 503, HttpError 400 for a broken
   * encoding, and the reason of `drainSignal`.
   */
  async receiveJson(request: Request, maxBodyBytes: number): Promise<ParsedJson> {
    return this.#receiveWith(request, maxBodyBytes, (bytes) => this.#parser.parse(bytes));
  }

  /**
   * The same for a body with other bytes behind `numJsonBytes` of JSON; `rest` is a view of them. Also throws HttpError
   * 400 if the body is shorter than its JSON should be.
   */
  async receiveJsonAndRest(
    request: Request,
    maxBodyBytes: number,
    numJsonBytes: number,
  ): Promise<{ readonly json: ParsedJson; readonly rest: Uint8Array }> {
    return this.#receiveWith(request, maxBodyBytes, async (bytes) => {
      if (numJsonBytes > bytes.byteLength) throw tooShort(bytes.byteLength, numJsonBytes);
      const rest = bytes.subarray(numJsonBytes);
      // A copy, because the parser takes over the memory of long ones.
      return { json: await this.#parser.parse(new Uint8Array(bytes.subarray(0, numJsonBytes))), rest };
    });
  }

  async #receiveWith<Result>(
    request: Request,
    maxBodyBytes: number,
    read: (bytes: Uint8Array<ArrayBuffer>) => Promise<Result>,
  ): Promise<Result> {
    this.#drainSignal.throwIfAborted();
    const announced = Number(request.headers.get("content-length") ?? 0);
    if (announced > maxBodyBytes) throw tooLarge(`${announced} bytes`, maxBodyBytes);
    this.#requireRoomToKeep(announced);
    const body = this.#admit();
    try {
      const bytes = await this.#receive(request, body, maxBodyBytes);
      body.isComplete = true;
      this.#keep(request, bytes.byteLength);
      return await read(bytes);
    } finally {
      this.#release(body);
    }
  }

  /** The answer is complete, or given up: nothing refers to the body any more. */
  forget(request: Request): void {
    this.#numKeptBytes -= this.#kept.get(request) ?? 0;
    this.#kept.delete(request);
  }

  async close(): Promise<void> {
    await this.#parser.close();
  }

  #keep(request: Request, numBytes: number): void {
    if (numBytes <= FREE_BYTES) return;
    this.#requireRoomToKeep(numBytes);
    this.#kept.set(request, numBytes);
    this.#numKeptBytes += numBytes;
  }

  /** A body that is alone may have the maximum length, whatever the heap has. */
  #requireRoomToKeep(numBytes: number): void {
    const isAlone = this.#kept.size === 0;
    if (numBytes <= FREE_BYTES || isAlone || this.#numKeptBytes + numBytes <= this.#maxKeptBytes) return;
    throw new HttpError(
      429,
      "queue_full",
      `There is no room for a body of ${numBytes} bytes: those of ${this.#kept.size} requests in progress have ${this.#numKeptBytes} bytes, and the limit is ${Math.floor(this.#maxKeptBytes)}. Send it again later.`,
      { headers: { "Retry-After": "2" } },
    );
  }

  async #receive(request: Request, body: IncomingBody, maxBodyBytes: number): Promise<Buffer<ArrayBuffer>> {
    const { signal } = body;
    const received = receiveBody(request, { idleTimeoutMs: this.#idleTimeoutMs, signal });
    const encoding = request.headers.get("content-encoding");
    return decodeContent(encoding, body.countArrivals(received, maxBodyBytes), async (chunks) => {
      const kept: Uint8Array[] = [];
      for await (const chunk of chunks) {
        if (body.numHeldBytes + chunk.byteLength > maxBodyBytes) throw tooLarge("more bytes", maxBodyBytes);
        this.#hold(body, chunk.byteLength);
        kept.push(chunk);
      }
      return Buffer.concat(kept);
    });
  }

  #admit(): IncomingBody {
    if (this.#bodies.size >= this.#maxNumBodies && this.#evictSlowest(0) === null) throw this.#noRoom();
    const body = new IncomingBody(this.#now);
    this.#bodies.add(body);
    return body;
  }

  #hold(body: IncomingBody, numBytes: number): void {
    body.signal.throwIfAborted();
    if (body.numHeldBytes + numBytes > FREE_BYTES) this.#makeRoom(body, numBytes);
    body.numHeldBytes += numBytes;
    this.#numHeldBytes += numBytes;
  }

  #makeRoom(body: IncomingBody, numBytes: number): void {
    while (this.#numHeldBytes + numBytes > this.#maxHeldBytes) {
      // At least one body holds the mean or more. Evicting a body with less frees too little.
      const share = this.#numHeldBytes / this.#bodies.size;
      if (this.#evictSlowest(share) === null) throw this.#noRoom();
      // The evicted body may be this one.
      body.signal.throwIfAborted();
    }
  }

  /** Returns null when every body is complete, young, or holds less than `minHeldBytes`. */
  #evictSlowest(minHeldBytes: number): IncomingBody | null {
    const now = this.#now();
    let slowest: IncomingBody | null = null;
    for (const body of this.#bodies) {
      if (body.isComplete || body.numHeldBytes < minHeldBytes || now - body.start < FRESH_MS) continue;
      if (slowest === null || body.recentBytes(now) < slowest.recentBytes(now)) slowest = body;
    }
    if (slowest === null) return null;
    slowest.end(
      new HttpError(
        408,
        "request_timeout",
        `The body was the slowest to arrive when there was no room for more: ${this.#inUse()}. Send it again.`,
        { headers: { Connection: "close" } },
      ),
    );
    this.#release(slowest);
    return slowest;
  }

  #release(body: IncomingBody): void {
    if (this.#bodies.delete(body)) this.#numHeldBytes -= body.numHeldBytes;
  }

  #noRoom(): HttpError {
    return new HttpError(503, "too_many_bodies", `There is no room for another body: ${this.#inUse()}.`, {
      headers: { "Retry-After": "2", Connection: "close" },
    });
  }

  #inUse(): string {
    return `${this.#bodies.size} of ${this.#maxNumBodies} bodies are in progress, with ${this.#numHeldBytes} of ${this.#maxHeldBytes} bytes`;
  }
}

/** Mutable. */
class IncomingBody {
  readonly start: number;
  /** Decoded, in memory. */
  numHeldBytes = 0;
  isComplete = false;
  readonly #controller = new AbortController();
  readonly #now: () => number;
  #numRecentBytes = 0;
  #lastArrival: number;

  constructor(now: () => number) {
    this.#now = now;
    this.start = now();
    this.#lastArrival = this.start;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  end(reason: unknown): void {
    this.#controller.abort(reason);
  }

  /** Passes on the chunks as they were sent, still encoded. Throws HttpError 413 after `maxBytes`. */
  async *countArrivals(chunks: AsyncIterable<Uint8Array>, maxBytes: number): AsyncGenerator<Uint8Array> {
    let numBytes = 0;
    for await (const chunk of chunks) {
      numBytes += chunk.byteLength;
      if (numBytes > maxBytes) throw tooLarge("more bytes", maxBytes);
      const now = this.#now();
      this.#numRecentBytes = this.recentBytes(now) + chunk.byteLength;
      this.#lastArrival = now;
      yield chunk;
    }
  }

  /** Bytes that arrived, weighted by their age. */
  recentBytes(now: number): number {
    return this.#numRecentBytes * 2 ** ((this.#lastArrival - now) / HALF_LIFE_MS);
  }
}

/** The rest of the body stays unread, so the connection cannot be used again. */
function tooLarge(found: string, maxBodyBytes: number): HttpError {
  return new HttpError(
    413,
    "body_too_large",
    `The body has ${found}; the limit is ${maxBodyBytes}. MAX_BODY_BYTES sets the limit.`,
    { headers: { Connection: "close" } },
  );
}

function tooShort(numBytes: number, numJsonBytes: number): HttpError {
  return new HttpError(
    400,
    "invalid_value",
    `The body has ${numBytes} bytes, but its header says that ${numJsonBytes} bytes of JSON begin it.`,
  );
}

/** Owns a thread while there are long bodies. */
class JsonParser {
  #pool: Promise<Piscina<Uint8Array, ParsedJson>> | null = null;

  /** Takes over the memory of `bytes`, which must be its only view. */
  async parse(bytes: Uint8Array<ArrayBuffer>): Promise<ParsedJson> {
    if (bytes.byteLength <= MAX_INLINE_BYTES) return parseBodyBytes(bytes);
    this.#pool ??= startPool();
    return (await this.#pool).run(bytes, { transferList: [bytes.buffer] });
  }

  /** Ends the thread and its current work. */
  async close(): Promise<void> {
    await (await this.#pool)?.destroy();
  }
}

async function startPool(): Promise<Piscina<Uint8Array, ParsedJson>> {
  const { Piscina } = await import("piscina");
  const pool: Piscina<Uint8Array, ParsedJson> = new Piscina({
    // Sources are .ts, built modules .js, like this one.
    filename: new URL(`./json-worker${extname(import.meta.url)}`, import.meta.url).href,
    name: "parseBody",
    minThreads: 0,
    // The engine and the pictures need the other cores. The caller bounds the number of waiting bodies.
    maxThreads: 1,
    idleTimeout: IDLE_TIMEOUT_MS,
    recordTiming: false,
  });
  // A thread that dies between two tasks is harmless: the next task starts another.
  pool.on("error", () => {});
  return pool;
}
