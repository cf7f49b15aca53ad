/** Undoes the compression in which some hosts and object stores keep files, and send them although it was not asked for. */
import { promisify } from "node:util";
import { brotliDecompress, gunzip, inflate } from "node:zlib";
import type { ZlibOptions } from "node:zlib";

import { imageTooLarge } from "./bounded-bytes.ts";

type Decoder = (bytes: Uint8Array, options: Pick<ZlibOptions, "maxOutputLength">) => Promise<Buffer>;

const decoders: Readonly<Record<string, Decoder>> = {
  gzip: promisify(gunzip),
  "x-gzip": promisify(gunzip),
  deflate: promisify(inflate),
  br: promisify(brotliDecompress),
};

export interface ContentEncodingOptions {
  /** The header `Content-Encoding`. */
  readonly contentEncoding: string | undefined;
  readonly maxImageBytes: number;
  /** See `FetchImageOptions`. */
  readonly onBytes?: ((numBytes: number) => void) | undefined;
}

/**
 * Returns the bytes as they are if they are not encoded so: the header is often wrong, and may be anything
 * (`utf-8`, `aws-chunked`). Throws EngineError `image_too_large` if they have more than `maxImageBytes` when decoded.
 */
export async function withoutEncoding(
  bytes: Uint8Array,
  { contentEncoding = "", maxImageBytes, onBytes }: ContentEncodingOptions,
): Promise<Uint8Array> {
  const encoding = contentEncoding.trim().toLowerCase();
  const decoder = Object.hasOwn(decoders, encoding) ? decoders[encoding] : undefined;
  if (decoder === undefined) return bytes;
  try {
    const decoded = await decoder(bytes, { maxOutputLength: maxImageBytes });
    onBytes?.(Math.max(decoded.byteLength - bytes.byteLength, 0));
    return decoded;
  } catch (error) {
    if (error instanceof RangeError) throw imageTooLarge(maxImageBytes);
    return bytes;
  }
}
