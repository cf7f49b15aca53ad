/**
 * The last validator of each image. While the source confirms it, the bytes are the same, and an image whose processed
 * form is cached is not downloaded again.
 */
import { decodeRecord, encodeRecord } from "../multimodal/caches/record-codec.ts";
import type { JsonValue } from "../multimodal/caches/record-codec.ts";
import type { ValueCodec } from "../multimodal/caches/value-codec.ts";
import { hashCanonical } from "../multimodal/hasher.ts";
import type { CanonicalValue } from "../multimodal/hasher.ts";

/** Increase it with any change of `KnownImage` or of the meaning of validators. It is part of every key. */
export const SOURCE_CACHE_VERSION = 1;

export interface KnownImage {
  /** The source's own validator; see `ImageSource.fetchIfChanged`. */
  readonly validator: string;
  /** Hex SHA-256 of the encoded bytes. */
  readonly contentHash: string;
}

const noTensors = new Map<string, never>();
/** Approximate size of keys, strings and entries. */
const OVERHEAD_BYTES = 256;

export const knownImageCodec: ValueCodec<KnownImage> = {
  encode: (key, { validator, contentHash }) =>
    encodeRecord(key, { tensors: noTensors, details: { validator, contentHash } }),
  decode: (key, bytes) => (decodeRecord(key, bytes)?.details ?? null) as (KnownImage & JsonValue) | null,
  byteLengthOf: ({ validator, contentHash }) => OVERHEAD_BYTES + 2 * (validator.length + contentHash.length),
};

/** References may contain secrets (presigned URLs do), and a tenant's images are private to the tenant. */
export function sourceCacheKey(reference: string, tenantSalt: string | null): string {
  return hashCanonical({ reference, tenantSalt } satisfies CanonicalValue);
}
