/** The values of the caches' tests: a few numbers, with a known size and a codec. */
import { decodeRecord, encodeRecord } from "../../../../engine/multimodal/caches/record-codec.ts";
import type { ValueCodec } from "../../../../engine/multimodal/caches/value-codec.ts";

export const numbersCodec: ValueCodec<Float32Array> = {
  encode: (key, data) =>
    encodeRecord(key, {
      tensors: new Map([["data", { elementType: "float32", shape: [data.length], data }]]),
      details: null,
    }),
  decode: (key, bytes) => (decodeRecord(key, bytes)?.tensors.get("data")?.data as Float32Array | undefined) ?? null,
  byteLengthOf: (data) => data.byteLength,
};

/** 256 numbers (1 KiB) that identify their key and processing. */
export function numbersOf(key: string, processing = 0): Float32Array {
  return new Float32Array(256).fill(key.length * 1_000 + (key.codePointAt(0) ?? 0) + processing / 16);
}
