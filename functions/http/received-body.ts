/** Reads request bodies under deadlines, so that a sender that stalls or trickles is cut off. */
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
      const start = performance.now();
      const timer = setTimeout(() => ended.reject(idle(numBytes, idleTimeoutMs)), idleTimeoutMs);
      const { done, value } = await Promise.race([reader.read(), ended.promise]).finally(() => clearTimeout(timer));
      if (done) return;
      numBytes += value.byteLength;
      waitedMs += performance.now() - start;
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
