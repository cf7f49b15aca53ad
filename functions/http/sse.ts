/** Server-sent events: OpenAI's chunks, which have no names and end with `[DONE]`, or events named by their type. */
import type { ErrorBody } from "./error-body.ts";

/** Shorter than the times after which proxies close a silent connection. */
export const DEFAULT_KEEP_ALIVE_MS = 10_000;

/** How the events of an endpoint are written. */
export interface EventFormat {
  /** Whether an `event:` line repeats the `type` of each event. */
  readonly isNamed: boolean;
  /** The event for an error after the status has been sent. */
  toErrorEvent(error: ErrorBody): object;
  /** Sent after a silence, so that proxies keep the connection. Null for a comment, which clients do not see. */
  readonly keepAlive: object | null;
  /** The last data, after the events; null for none. */
  readonly end: string | null;
}

export const chunkFormat: EventFormat = {
  isNamed: false,
  toErrorEvent: (error) => error,
  keepAlive: null,
  end: "[DONE]",
};

export interface EventStreamOptions {
  readonly format: EventFormat;
  /** `format.keepAlive` is sent after this long without data. */
  readonly keepAliveMs: number;
  readonly describeError: (error: unknown) => ErrorBody;
  /** The reader has disconnected: abort running work. */
  readonly onCancel: () => void;
  /** The stream is complete, or abandoned and all its work has ended. */
  readonly onClose: () => void;
}

const encoder = new TextEncoder();
const KEEP_ALIVE_COMMENT = encoder.encode(": keep-alive\n\n");
const isLate = Symbol("late");

export const eventStreamHeaders = {
  "Content-Type": "text/event-stream; charset=utf-8",
  "Cache-Control": "no-cache",
  "X-Accel-Buffering": "no",
} as const;

/**
 * One event per chunk. Waits for the first chunk before it returns, so that earlier errors are thrown and get their own
 * status. After `keepAliveMs` of waiting it starts the stream anyway. Chunks are pulled only as fast as the client
 * reads.
 */
export async function createEventStream(
  chunks: AsyncGenerator<object>,
  { format, keepAliveMs, describeError, onCancel, onClose }: EventStreamOptions,
): Promise<ReadableStream<Uint8Array>> {
  let next = chunks.next();
  await within(next, keepAliveMs);

  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const result = await within(next, keepAliveMs);
          if (result === isLate) return controller.enqueue(encodeKeepAlive(format));
          if (!result.done) {
            controller.enqueue(encodeEvent(result.value, format));
            next = chunks.next();
            // A failure shows at the next pull. Until then it must not count as unhandled.
            next.catch(() => {});
            return;
          }
        } catch (error) {
          controller.enqueue(encodeEvent(format.toErrorEvent(describeError(error)), format));
        }
        if (format.end !== null) controller.enqueue(encoder.encode(`data: ${format.end}\n\n`));
        controller.close();
        onClose();
      },
      async cancel() {
        onCancel();
        // Its `finally` blocks must run even if it is suspended at a chunk that was not read.
        await chunks.return(undefined).catch(() => {});
        onClose();
      },
    },
    { highWaterMark: 0 },
  );
}

function encodeEvent(data: object, { isNamed }: EventFormat): Uint8Array {
  const name = isNamed && "type" in data ? `event: ${String(data.type)}\n` : "";
  return encoder.encode(`${name}data: ${JSON.stringify(data)}\n\n`);
}

function encodeKeepAlive(format: EventFormat): Uint8Array {
  return format.keepAlive === null ? KEEP_ALIVE_COMMENT : encodeEvent(format.keepAlive, format);
}

async function within<Value>(promise: Promise<Value>, timeoutMs: number): Promise<Value | typeof isLate> {
  const { promise: late, resolve } = Promise.withResolvers<typeof isLate>();
  const timer = setTimeout(resolve, timeoutMs, isLate);
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
