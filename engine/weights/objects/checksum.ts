/** Checksums of whole objects, as object stores list them. */
import { createHash } from "node:crypto";
import type { FileHandle } from "node:fs/promises";

export interface Checksum {
  /** CRC-32C is that of Castagnoli: RFC 3720, appendix B.4. */
  readonly algorithm: "md5" | "crc32c";
  /** Base64, big-endian. */
  readonly value: string;
}

/** Large enough for full disk speed, small enough that a chunk does not block the event loop. */
const CHUNK_BYTES = 4 * 1024 * 1024;

/** Reads the whole file. */
export async function hasChecksum(
  file: FileHandle,
  { algorithm, value }: Checksum,
  signal: AbortSignal,
): Promise<boolean> {
  const digest = algorithm === "md5" ? createHash("md5") : new Crc32c();
  const chunk = Buffer.allocUnsafe(CHUNK_BYTES);
  for (let position = 0; ;) {
    signal.throwIfAborted();
    const { bytesRead } = await file.read(chunk, 0, chunk.byteLength, position);
    if (bytesRead === 0) break;
    digest.update(chunk.subarray(0, bytesRead));
    position += bytesRead;
  }
  return digest.digest("base64") === value;
}

/** The polynomial 0x1EDC6F41 with its bits reversed. */
const POLYNOMIAL = 0x82f63b78;

const crcOfByte = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ POLYNOMIAL : crc >>> 1;
  return crc;
});

class Crc32c {
  #crc = 0xffffffff;

  update(bytes: Uint8Array): void {
    let crc = this.#crc;
    for (let index = 0; index < bytes.length; index++) {
      crc = crcOfByte[(crc ^ bytes[index]!) & 0xff]! ^ (crc >>> 8);
    }
    this.#crc = crc;
  }

  digest(encoding: "base64"): string {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32BE((this.#crc ^ 0xffffffff) >>> 0);
    return bytes.toString(encoding);
  }
}
