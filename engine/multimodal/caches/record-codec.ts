/**
 * Encodes one cached value: named tensors and a JSON part, with everything needed to reject bytes that are not exactly
 * what was written.
 *
 * Little-endian: "FVRC", then as uint32 the version, the CRC-32 of all following bytes, the total length and the length
 * of the header; the header as JSON; the tensors, each at a multiple of 64.
 */
import { crc32 } from "node:zlib";

import { invariant } from "../../contract/errors.ts";
import { bytesPerElement, numElements, typedArrayOver } from "../../runtime/element-type.ts";
import type { TensorArrays, TensorElementType } from "../../runtime/element-type.ts";
import type { ItemTensor } from "../processed-item.ts";

/** Part of every key: replicas of different versions share a store without reading each other's values. */
export const RECORD_VERSION = 2;

const magic = Buffer.from("FVRC");
const VERSION_AT = 4;
const CHECKSUM_AT = 8;
const CHECKED_FROM = 12;
const TOTAL_LENGTH_AT = 12;
const HEADER_LENGTH_AT = 16;
const HEADER_AT = 20;
/** Typed arrays of every element type can view a tensor. */
const ALIGNMENT = 64;

export type JsonValue =
  | null
  | boolean
  | number
  | string
  | readonly JsonValue[]
  | { readonly [key: string]: JsonValue | undefined };

export interface CacheRecord {
  readonly tensors: ReadonlyMap<string, ItemTensor>;
  readonly details: JsonValue;
}

interface RecordHeader {
  /** A value found under another key is rejected. */
  readonly key: string;
  readonly details: JsonValue;
  readonly tensors: readonly TensorEntry[];
}

interface TensorEntry {
  readonly name: string;
  readonly elementType: TensorElementType;
  readonly shape: readonly number[];
  /** In bytes from the end of the padded header. */
  readonly offset: number;
}

export function encodeRecord(key: string, record: CacheRecord): Uint8Array {
  const entries: TensorEntry[] = [];
  let dataLength = 0;
  for (const [name, { elementType, shape, data }] of record.tensors) {
    const numBytes = numElements(shape) * bytesPerElement(elementType);
    invariant(data.byteLength === numBytes, `tensor ${name} of ${data.byteLength} bytes, its shape has ${numBytes}`);
    entries.push({ name, elementType, shape, offset: dataLength });
    dataLength = aligned(dataLength + numBytes);
  }
  const header: RecordHeader = { key, details: record.details, tensors: entries };
  const headerBytes = Buffer.from(JSON.stringify(header));
  const dataAt = aligned(HEADER_AT + headerBytes.length);

  const bytes = Buffer.alloc(dataAt + dataLength);
  magic.copy(bytes);
  bytes.writeUInt32LE(RECORD_VERSION, VERSION_AT);
  bytes.writeUInt32LE(bytes.length, TOTAL_LENGTH_AT);
  bytes.writeUInt32LE(headerBytes.length, HEADER_LENGTH_AT);
  headerBytes.copy(bytes, HEADER_AT);
  for (const [index, { data }] of [...record.tensors.values()].entries()) {
    const { offset } = entries[index]!;
    bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), dataAt + offset);
  }
  bytes.writeUInt32LE(crc32(bytes.subarray(CHECKED_FROM)), CHECKSUM_AT);
  return bytes;
}

/**
 * Returns null for bytes that `encodeRecord` of this version did not write for this key: truncated, altered, foreign.
 * CRC-32 detects every change within 4 bytes, and all but one in 2^32 of the others. A cryptographic hash takes six
 * times as long and would not stop anyone with write access to the store either. Tensors are views of `bytes` if its
 * alignment allows (it starts at a multiple of 8 in its buffer), otherwise copies.
 */
export function decodeRecord(key: string, bytes: Uint8Array): CacheRecord | null {
  if (bytes.length < HEADER_AT) return null;
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const headerEnd = HEADER_AT + buffer.readUInt32LE(HEADER_LENGTH_AT);
  const isWhole =
    magic.compare(buffer, 0, magic.length) === 0 &&
    buffer.readUInt32LE(VERSION_AT) === RECORD_VERSION &&
    buffer.readUInt32LE(TOTAL_LENGTH_AT) === buffer.length &&
    headerEnd <= buffer.length &&
    buffer.readUInt32LE(CHECKSUM_AT) === crc32(buffer.subarray(CHECKED_FROM));
  if (!isWhole) return null;
  const header = JSON.parse(buffer.toString("utf8", HEADER_AT, headerEnd)) as RecordHeader;
  if (header.key !== key) return null;

  const dataAt = aligned(headerEnd);
  const tensors = header.tensors.map(({ name, elementType, shape, offset }) => {
    const start = dataAt + offset;
    const data = viewOrCopy(
      elementType,
      bytes.subarray(start, start + numElements(shape) * bytesPerElement(elementType)),
    );
    return [name, { elementType, shape, data } as ItemTensor] as const;
  });
  return { tensors: new Map(tensors), details: header.details };
}

function viewOrCopy<E extends TensorElementType>(elementType: E, bytes: Uint8Array): TensorArrays[E] {
  const size = bytesPerElement(elementType);
  const source = bytes.byteOffset % size === 0 ? bytes : bytes.slice();
  return typedArrayOver(elementType, source.buffer, source.byteOffset, source.byteLength / size);
}

function aligned(length: number): number {
  return Math.ceil(length / ALIGNMENT) * ALIGNMENT;
}
