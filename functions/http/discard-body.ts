/** Reads the rest of the body of a rejected request, so that its sender sees the answer. */
import type { IncomingMessage } from "node:http";

/** A rejected body is read while bytes keep arriving, up to this time and length. Then the connection closes. */
const MAX_IDLE_MS = 1000;
const MAX_DISCARD_MS = 5000;
const MAX_DISCARDED_BYTES = 64 * 1024 * 1024;

/**
 * Many clients write the whole body before they read. If the connection closed with bytes unread, the kernel would reset
 * it, and the client would lose the answer (RFC 9112, section 9.6). Never rejects.
 */
export async function discardBody(incoming: IncomingMessage): Promise<void> {
  if (incoming.complete || incoming.destroyed) return;
  const done = Promise.withResolvers<void>();
  let numBytes = 0;
  const idle = setTimeout(done.resolve, MAX_IDLE_MS);
  const count = (chunk: Buffer): void => {
    idle.refresh();
    numBytes += chunk.byteLength;
    if (numBytes > MAX_DISCARDED_BYTES) done.resolve();
  };
  const timer = setTimeout(done.resolve, MAX_DISCARD_MS);
  // The body's web stream pauses the connection when its queue is full, and would keep what it is given.
  incoming.removeAllListeners("data").resume();
  incoming.on("data", count).once("end", done.resolve).once("close", done.resolve).once("error", done.resolve);
  await done.promise;
  clearTimeout(timer);
  clearTimeout(idle);
  incoming.off("data", count);
}
