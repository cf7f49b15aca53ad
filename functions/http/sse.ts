/** Server-sent events in OpenAI's format: `data: {json}` events, `[DONE]` last. */

export interface EventStreamOptions {
  /** A comment is sent after this long without data, so that proxies keep the connection. */
  readonly keepAliveMs: number;
  /** The body of the event for an error after the status has been sent. */
  readonly toErrorEvent: (error: unknown) => object;
  /** The reader has disconnected: abort running work. */
  readonly onCancel: () => void;
  /** The stream is complete, or abandoned and all its work has ended. */
  readonly onClose: () => void;
}

const encoder = new TextEncoder();
const KEEP_ALIVE = encoder.encode(": keep-alive\n\n");
const DONE = encoder.encode("data: [DONE]\n\n");
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
  { keepAliveMs, toErrorEvent, onCancel, onClose }: EventStreamOptions,
): Promise<ReadableStream<Uint8Array>> {
  let next = chunks.next();
  await within(next, keepAliveMs);

  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const result = await within(next, keepAliveMs);
          if (result === isLate) return controller.enqueue(KEEP_ALIVE);
          if (!result.done) {
            controller.enqueue(encodeEvent(result.value));
            next = chunks.next();
            // A failure shows at the next pull. Until then it must not count as unhandled.
            next.catch(() => {});
            return;
          }
        } catch (error) {
          controller.enqueue(encodeEvent(toErrorEvent(error)));
        }
        controller.enqueue(DONE);
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

function encodeEvent(data: object): Uint8Array {
  return encoder.encode(`data: ${JSON.stringify(data)}\n\n`);
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
