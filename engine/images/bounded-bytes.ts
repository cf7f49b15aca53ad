/** Reads a stream of unknown length without ever holding more than a limit. */
import type { Readable } from "node:stream";
import { EngineError } from "../contract/errors.ts";

export interface BoundedReadOptions {
  /** Length its sender announced; null where it did not. */
  readonly announcedBytes: number | null;
  readonly maxImageBytes: number;
}

/**
 * All bytes of the stream. Destroys it and throws `image_too_large` when the announced length is beyond the limit, else
 * at the first byte beyond it; errors of the stream are thrown as they are.
 */
export async function readBounded(stream: Readable, options: BoundedReadOptions): Promise<Uint8Array> {
  const { announcedBytes, maxImageBytes } = options;
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
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, numBytes);
}

/** Ends a stream nobody reads; its own complaint about that is of no interest. */
export function discard(stream: Readable): void {
  stream.on("error", () => {});
  stream.destroy();
}
