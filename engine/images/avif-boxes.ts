/** Reads the boxes of an AVIF (ISO/IEC 14496-12). */
import { EngineError } from "../contract/errors.ts";

export interface Box {
  /** Four characters. */
  readonly type: string;
  /** Position of the type in the bytes that were read. */
  readonly typeOffset: number;
  /** What follows the type; a view of the file. */
  readonly content: Uint8Array;
}

/** As many as a file may have items. */
const MAX_BOXES = 65_536;

/** Throws EngineError `invalid_image` for more boxes than any file has. */
export function readBoxes(bytes: Uint8Array): readonly Box[] {
  const boxes: Box[] = [];
  for (const box of boxesIn(bytes)) {
    if (boxes.push(box) > MAX_BOXES) throw brokenAvif();
  }
  return boxes;
}

/** Throws EngineError `invalid_image` unless there is exactly one box of the type: decoders differ in which they take. */
export function onlyBox(boxes: Iterable<Box>, type: string): Box {
  let found: Box | null = null;
  for (const box of boxes) {
    if (box.type !== type) continue;
    if (found !== null) throw brokenAvif();
    found = box;
  }
  if (found === null) throw brokenAvif();
  return found;
}

/** A box with a size that cannot be ends the list. */
export function* boxesIn(bytes: Uint8Array): Generator<Box> {
  const view = viewOf(bytes);
  for (let at = 0; at + 8 <= bytes.byteLength;) {
    const shortSize = view.getUint32(at);
    const headerBytes = shortSize === 1 ? 16 : 8;
    if (at + headerBytes > bytes.byteLength) return;
    const isLast = shortSize === 0;
    const size = shortSize === 1 ? Number(view.getBigUint64(at + 8)) : shortSize;
    if (!isLast && size < headerBytes) return;
    const end = isLast ? bytes.byteLength : at + size;
    yield { type: textAt(bytes, at + 4), typeOffset: at + 4, content: bytes.subarray(at + headerBytes, end) };
    at = end;
  }
}

/** Four characters. */
export function textAt(bytes: Uint8Array, at: number): string {
  return String.fromCharCode(...bytes.subarray(at, at + 4));
}

export function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

export function brokenAvif(cause?: unknown): EngineError {
  return new EngineError("invalid_image", "The avif picture is broken or incomplete.", { cause });
}
