/** Reads numbers from the first directory of a TIFF. */
import { EngineError } from "../contract/errors.ts";

const HEADER_BYTES = 8;
const ENTRY_BYTES = 12;

/** Bytes of a value by its type: BYTE, SHORT, LONG. */
const bytesOfType: Readonly<Record<number, number>> = { 1: 1, 3: 2, 4: 4 };

/**
 * The numbers of those of `tags` that the first page has, by tag. Of several values, the largest counts.
 *
 * @throws EngineError `invalid_image` for a value that is no plain number.
 */
export function readTiffTags(bytes: Uint8Array, tags: readonly number[]): Map<number, number> {
  const found = new Map<number, number>();
  visitEntries(bytes, (view, at, isLittleEndian) => {
    const tag = view.getUint16(at, isLittleEndian);
    if (tags.includes(tag)) found.set(tag, Math.max(found.get(tag) ?? 0, readNumber(view, at, isLittleEndian)));
  });
  return found;
}

const EXTRA_SAMPLES = 338;

/**
 * The meaning of the first sample beyond the colours: 1 and 2 are transparency, and 0 is none. Null if the first directory
 * does not say.
 */
export function readExtraSample(bytes: Uint8Array): number | null {
  let kind: number | null = null;
  visitEntries(bytes, (view, at, isLittleEndian) => {
    if (view.getUint16(at, isLittleEndian) !== EXTRA_SAMPLES) return;
    const isShort = view.getUint16(at + 2, isLittleEndian) === 3;
    const isInPlace = view.getUint32(at + 4, isLittleEndian) * (isShort ? 2 : 1) <= 4;
    const valueAt = isInPlace ? at + 8 : view.getUint32(at + 8, isLittleEndian);
    if (valueAt + 2 <= bytes.byteLength) {
      kind = isShort ? view.getUint16(valueAt, isLittleEndian) : view.getUint8(valueAt);
    }
  });
  return kind;
}

/** Calls back with the offset of each entry of the first directory. */
function visitEntries(bytes: Uint8Array, onEntry: (view: DataView, at: number, isLittleEndian: boolean) => void): void {
  if (bytes.byteLength < HEADER_BYTES) return;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const isLittleEndian = bytes[0] === "I".charCodeAt(0);
  const directory = view.getUint32(4, isLittleEndian);
  if (directory + 2 > bytes.byteLength) return;
  const numEntries = view.getUint16(directory, isLittleEndian);
  for (let entry = 0; entry < numEntries; entry++) {
    const at = directory + 2 + entry * ENTRY_BYTES;
    if (at + ENTRY_BYTES > bytes.byteLength) return;
    onEntry(view, at, isLittleEndian);
  }
}

/** The value of an entry: a type, a count of 1, and four bytes that start with the number. */
function readNumber(view: DataView, at: number, isLittleEndian: boolean): number {
  const numBytes = bytesOfType[view.getUint16(at + 2, isLittleEndian)];
  if (numBytes === undefined || view.getUint32(at + 4, isLittleEndian) !== 1) {
    throw new EngineError("invalid_image", "The tiff picture is broken or incomplete.");
  }
  if (numBytes === 1) return view.getUint8(at + 8);
  return numBytes === 2 ? view.getUint16(at + 8, isLittleEndian) : view.getUint32(at + 8, isLittleEndian);
}
