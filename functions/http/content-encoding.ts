/** Decodes compressed bodies. */
import { Readable } from "node:stream";
import type { Transform } from "node:stream";
import { createBrotliDecompress, createGunzip, createInflate } from "node:zlib";

import { HttpError } from "./errors.ts";

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
