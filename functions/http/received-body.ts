/** Reads request bodies under deadlines, so that a sender that stalls or trickles is cut off, and decompresses them. */
import { Readable } from "node:stream";
import type { Transform } from "node:stream";
import { createBrotliDecompress, createGunzip, createInflate } from "node:zlib";

import { RunningTimer } from "../../engine/index.ts";
import { HttpError } from "./errors.ts";

/** A body may be slow at first; after this time its mean rate counts. Both figures are Apache's (mod_reqtimeout). */
export const RATE_GRACE_MS = 20_000;
export const MIN_BYTES_PER_SECOND = 500;

export interface ReceiveOptions {
  /** Longest wait for the next byte. */
  readonly idleTimeoutMs: number;
  /** Ends the reading with its reason. */
  readonly signal?: AbortSignal;
  /** Time of waiting after which the mean rate must be `MIN_BYTES_PER_SECOND` or more. Default `RATE_GRACE_MS`. */
  readonly rateGraceMs?: number;
}

/**
 * Yields the chunks of the body as they arrive. Only the time of waiting for the sender counts, not the time that the
 * caller takes for a chunk. Throws HttpError 408 when a deadline passes, the reason of `signal`, or the error of the
 * connection. The rest of the body then stays unread, so the answer closes the connection.
 */
export async function* receiveBody(
  request: Request,
  { idleTimeoutMs, signal, rateGraceMs = RATE_GRACE_MS }: ReceiveOptions,
): AsyncGenerator<Uint8Array> {
  if (request.body === null) return;
  const reader = request.body.getReader();
  const ended = Promise.withResolvers<never>();
  // Handled here too, because the body may be complete before anything ends it.
  ended.promise.catch(() => {});
  const onAbort = (): void => ended.reject(signal?.reason);
  signal?.addEventListener("abort", onAbort, { once: true });
  let numBytes = 0;
  let waitedMs = 0;
  try {
    for (;;) {
      signal?.throwIfAborted();
      const timer = new RunningTimer(idleTimeoutMs, () => ended.reject(idle(numBytes, idleTimeoutMs)));
      const { done, value } = await Promise.race([reader.read(), ended.promise]).finally(() => timer[Symbol.dispose]());
      if (done) return;
      numBytes += value.byteLength;
      waitedMs += timer.elapsedMs;
      if (waitedMs > rateGraceMs && numBytes < (waitedMs / 1000) * MIN_BYTES_PER_SECOND) {
        throw tooSlow(numBytes, waitedMs);
      }
      yield value;
    }
  } finally {
    signal?.removeEventListener("abort", onAbort);
    reader.cancel().catch(() => {});
  }
}

function idle(numBytes: number, idleTimeoutMs: number): HttpError {
  return timedOut(
    `No byte of the body arrived for ${idleTimeoutMs / 1000} s, after ${numBytes} bytes. BODY_IDLE_TIMEOUT_SECONDS sets the limit.`,
  );
}

function tooSlow(numBytes: number, waitedMs: number): HttpError {
  return timedOut(
    `${numBytes} bytes of the body arrived in ${Math.round(waitedMs / 1000)} s; the minimum is ${MIN_BYTES_PER_SECOND} bytes a second.`,
  );
}

function timedOut(message: string): HttpError {
  return new HttpError(408, "request_timeout", message, { headers: { Connection: "close" } });
}

/** Decoded bytes per chunk. Each chunk is a job for libuv's threads, so zlib's default of 16 KiB costs too many. */
const CHUNK_BYTES = 256 * 1024;

const decoders: Readonly<Record<string, () => Transform>> = {
  gzip: () => createGunzip({ chunkSize: CHUNK_BYTES }),
  "x-gzip": () => createGunzip({ chunkSize: CHUNK_BYTES }),
  deflate: () => createInflate({ chunkSize: CHUNK_BYTES }),
  br: () => createBrotliDecompress({ chunkSize: CHUNK_BYTES }),
};

const acceptedEncodings = "gzip, deflate, br";

export type TakeChunks<Taken> = (chunks: AsyncIterable<Uint8Array>) => Promise<Taken>;

/**
 * Calls `take` with the decoded chunks. Decoding stops when `take` throws, so `take` bounds the decoded length. Throws
 * the errors of `chunks` and `take`, HttpError 415 for an unknown encoding or several at once, and HttpError 400 for
 * data that is invalid in the encoding.
 */
export async function decodeContent<Taken>(
  contentEncoding: string | null,
  chunks: AsyncIterable<Uint8Array>,
  take: TakeChunks<Taken>,
): Promise<Taken> {
  const encoding = (contentEncoding ?? "").trim().toLowerCase();
  if (encoding === "" || encoding === "identity") return take(chunks);
  if (!Object.hasOwn(decoders, encoding)) throw unknownEncoding(encoding);
  const decoder = decoders[encoding]!();
  const source = Readable.from(chunks, { objectMode: false });
  source.once("error", (error) => decoder.destroy(error));
  try {
    return await take(source.pipe(decoder));
  } catch (error) {
    if (!isDecodingError(error)) throw error;
    throw new HttpError(400, "invalid_encoding", `Content-Encoding is ${encoding}, but the body is not.`, {
      cause: error,
      headers: { Connection: "close" },
    });
  } finally {
    // A pipeline would wait here for the rest of the body, which the sender may hold back.
    source.destroy();
    decoder.destroy();
  }
}

/** An error of zlib (`Z_DATA_ERROR`) or Brotli (`ERR__ERROR_FORMAT_…`). */
function isDecodingError(error: unknown): boolean {
  return error instanceof Error && "code" in error && /^(?:Z_|ERR__)/.test(String(error.code));
}

/** As in RFC 9110, section 12.5.3. The body stays unread, so the connection cannot be used again. */
function unknownEncoding(encoding: string): HttpError {
  return new HttpError(
    415,
    "unsupported_encoding",
    `Content-Encoding ${JSON.stringify(encoding.slice(0, 40))} is not supported: send the body without one, or use one of ${acceptedEncodings}.`,
    { headers: { "Accept-Encoding": acceptedEncodings, Connection: "close" } },
  );
}
