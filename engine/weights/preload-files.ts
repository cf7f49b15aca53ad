/**
 * Reads files into the operating system's cache before sessions map them. A mapped file is read page by page, one fault
 * after the other, which is slow on network disks and on images that are streamed.
 */
import { open } from "node:fs/promises";
import { availableMemory } from "node:process";

/** Larger than the reads ahead of common disks, small enough to stop soon. */
const CHUNK_BYTES = 8 * 1024 ** 2;
/** Node's default of four threads for files, less one for everything else that loads. */
const NUM_READERS = 3;
/** The rest is for the process: pages beyond it would only replace others of the same files. */
const MAX_SHARE_OF_MEMORY = 0.8;

/**
 * Resolves to the number of bytes read. A file that cannot be read is left to the session, whose error says more.
 *
 * @param signal Ends the reading early.
 */
export async function preloadFiles(
  paths: readonly string[],
  signal: AbortSignal,
  maxBytes = availableMemory() * MAX_SHARE_OF_MEMORY,
): Promise<number> {
  let numBytes = 0;
  for (const path of new Set(paths)) {
    const file = await open(path, "r").catch(() => null);
    if (file === null) continue;
    try {
      const { size } = await file.stat();
      let nextByte = 0;
      const readChunks = async (): Promise<void> => {
        const chunk = new Uint8Array(CHUNK_BYTES);
        while (nextByte < size && numBytes < maxBytes && !signal.aborted) {
          const position = nextByte;
          nextByte += CHUNK_BYTES;
          const { bytesRead } = await file.read(chunk, 0, CHUNK_BYTES, position);
          numBytes += bytesRead;
        }
      };
      await Promise.all(Array.from({ length: NUM_READERS }, readChunks)).catch(() => {});
    } finally {
      await file.close();
    }
  }
  return numBytes;
}
