/** Reads a stream of unknown length without holding more than a limit. */
import type { Readable } from "node:stream";

import { EngineError } from "../contract/errors.ts";

export interface BoundedReadOptions {
  /** The length that the sender announced, or null. */
  readonly announcedBytes: number | null;
  readonly maxImageBytes: number;
  /** See `FetchImageOptions`. */
  readonly onBytes?: ((numBytes: number) => void) | undefined;
}

/**
 * Returns all bytes of the stream. If the announced length exceeds the limit, or at the first byte beyond it, destroys
 * the stream and throws `image_too_large`. Errors of the stream are thrown unchanged.
 */
export async function readBounded(stream: Readable, options: BoundedReadOptions): Promise<Uint8Array> {
  const { announcedBytes, maxImageBytes, onBytes } = options;
  if (announcedBytes !== null && announcedBytes > maxImageBytes) {
    discard(stream);
    throw new EngineError("image_too_large", `The image has ${announcedBytes} bytes; the limit is ${maxImageBytes}.`, {
      setting: "maxImageBytes",
    });
  }
  const chunks: Uint8Array[] = [];
  let numBytes = 0;
  for await (const chunk of stream as AsyncIterable<Uint8Array>) {
    numBytes += chunk.byteLength;
    if (numBytes > maxImageBytes) {
      throw new EngineError("image_too_large", `The image has more bytes than the limit of ${maxImageBytes}.`, {
        setting: "maxImageBytes",
      });
    }
    onBytes?.(chunk.byteLength);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, numBytes);
}

/** Ends a stream without a reader, and ignores the resulting error. */
export function discard(stream: Readable): void {
  stream.on("error", () => {});
  stream.destroy();
}
