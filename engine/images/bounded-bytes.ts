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
export async function readBounded(
  stream: Readable,
  { announcedBytes, ...options }: BoundedReadOptions,
): Promise<Uint8Array> {
  try {
    if (announcedBytes !== null) checkImageBytes(announcedBytes, options.maxImageBytes);
  } catch (error) {
    discard(stream);
    throw error;
  }
  return collectBounded(stream, options);
}

/** Throws `image_too_large` for an announced length above the limit. */
export function checkImageBytes(numBytes: number, maxImageBytes: number): void {
  if (numBytes <= maxImageBytes) return;
  throw tooLarge(`The image has ${numBytes} bytes; the limit is ${maxImageBytes}.`);
}

/** Returns all bytes, or ends the iteration at the first one beyond the limit and throws `image_too_large`. */
export async function collectBounded(
  chunks: AsyncIterable<Uint8Array>,
  { maxImageBytes, onBytes }: Omit<BoundedReadOptions, "announcedBytes">,
): Promise<Uint8Array> {
  const collected: Uint8Array[] = [];
  let numBytes = 0;
  for await (const chunk of chunks) {
    numBytes += chunk.byteLength;
    if (numBytes > maxImageBytes) throw imageTooLarge(maxImageBytes);
    onBytes?.(chunk.byteLength);
    collected.push(chunk);
  }
  return Buffer.concat(collected, numBytes);
}

/** The error for an image whose size is not known, except that it exceeds the limit. */
export function imageTooLarge(maxImageBytes: number): EngineError {
  return tooLarge(`The image has more bytes than the limit of ${maxImageBytes}.`);
}

function tooLarge(message: string): EngineError {
  return new EngineError("image_too_large", message, { setting: "maxImageBytes" });
}

/** Ends a stream without a reader, and ignores the resulting error. */
export function discard(stream: Readable): void {
  stream.on("error", () => {});
  stream.destroy();
}
