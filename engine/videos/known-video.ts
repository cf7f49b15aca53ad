/**
 * What is known of a video without its bytes. While its source confirms the validator, or where the caller named it, the
 * bytes are the same, and a video whose frames are cached is not downloaded again.
 */
import { decodeRecord, encodeRecord } from "../multimodal/caches/record-codec.ts";
import type { ValueCodec } from "../multimodal/caches/value-codec.ts";
import { hashCanonical } from "../multimodal/hasher.ts";
import type { CanonicalValue } from "../multimodal/hasher.ts";
import type { VideoFacts } from "./video-facts.ts";

/** Increase it with any change of `KnownVideo`, of validators, or of the frames that are found in equal bytes. */
export const KNOWN_VIDEO_VERSION = 1;

export interface KnownVideo {
  /** The source's own, see `ImageSource.fetchIfChanged`; null if it has none. */
  readonly validator: string | null;
  /** Hex SHA-256 of the encoded bytes. */
  readonly contentHash: string;
  readonly facts: VideoFacts;
}

type KnownDetails = Omit<KnownVideo, "facts"> & Omit<VideoFacts, "frameTimes">;

/** Approximate size of keys, strings, numbers and entries. */
const OVERHEAD_BYTES = 512;

export const knownVideoCodec: ValueCodec<KnownVideo> = {
  encode(key, { validator, contentHash, facts: { frameTimes, ...facts } }) {
    const data = new Uint8Array(frameTimes.buffer, frameTimes.byteOffset, frameTimes.byteLength);
    const times = { elementType: "uint8", shape: [data.length], data } as const;
    return encodeRecord(key, {
      tensors: new Map([["frame_times", times]]),
      details: { validator, contentHash, ...facts } satisfies KnownDetails,
    });
  },
  decode(key, bytes) {
    const record = decodeRecord(key, bytes);
    const times = record?.tensors.get("frame_times");
    if (!record || times?.elementType !== "uint8") return null;
    const { validator, contentHash, ...facts } = record.details as unknown as KnownDetails;
    // A copy, which starts at a multiple of 8.
    return { validator, contentHash, facts: { ...facts, frameTimes: new Float64Array(times.data.slice().buffer) } };
  },
  byteLengthOf: ({ validator, facts: { frameTimes } }) =>
    OVERHEAD_BYTES + 2 * (validator?.length ?? 0) + frameTimes.byteLength,
};

/** By reference, or by the caller's name. References may contain secrets, and a tenant's videos are private to it. */
export function knownVideoKey(
  video: { readonly reference: string } | { readonly uuid: string },
  tenantSalt: string,
): string {
  return hashCanonical({ video, tenantSalt } satisfies CanonicalValue);
}
