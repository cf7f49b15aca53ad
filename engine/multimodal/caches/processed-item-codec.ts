/** Processed items as cached bytes: their tensors, and beside them what they do to the prompt. */
import { tensorBytesOf } from "../processed-item.ts";
import type { ProcessedItem } from "../processed-item.ts";
import { decodeRecord, encodeRecord } from "./record-codec.ts";
import type { JsonValue } from "./record-codec.ts";
import type { ValueCodec } from "./value-codec.ts";

/** To be raised with any change of what `ProcessedItem` says; part of every key. */
export const processedItemVersion = 1;

export const processedItemCodec: ValueCodec<ProcessedItem> = {
  encode(key, { tensors, promptUpdates }) {
    return encodeRecord(key, { tensors, details: promptUpdates as unknown as JsonValue });
  },
  decode(key, bytes) {
    const record = decodeRecord(key, bytes);
    if (record === null) return null;
    return { tensors: record.tensors, promptUpdates: record.details as unknown as ProcessedItem["promptUpdates"] };
  },
  byteLengthOf: tensorBytesOf,
};
