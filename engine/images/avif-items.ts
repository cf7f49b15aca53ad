/** Reads the items of an AVIF: their types, their data and how they refer to each other (ISO/IEC 14496-12, 8.11). */
import { brokenAvif, readBoxes, textAt, viewOf } from "./avif-boxes.ts";
import type { Box } from "./avif-boxes.ts";

/** Far more than any picture has; libheif accepts 1,000 and 32. */
const MAX_ITEMS = 10_000;
const MAX_EXTENTS = 32;

/** Types of the items by id, from `iinf`. Throws EngineError `invalid_image` or RangeError for a broken box. */
export function readItemTypes({ content }: Box): ReadonlyMap<number, string> {
  const types = new Map<number, string>();
  const hasShortCount = content[0] === 0;
  for (const { type, content: entry } of readBoxes(content.subarray(hasShortCount ? 6 : 8))) {
    const version = entry[0];
    if (type !== "infe" || (version !== 2 && version !== 3)) throw brokenAvif();
    const id = version === 2 ? viewOf(entry).getUint16(4) : viewOf(entry).getUint32(4);
    if (types.has(id)) throw brokenAvif();
    types.set(id, textAt(entry, version === 2 ? 8 : 10));
  }
  return types;
}

/**
 * The data of the items by id, from `iloc`. Items with the same places share one array.
 *
 * @param idat The content of the box `idat`, which may contain small items; empty without one.
 * @throws EngineError `invalid_image` or RangeError for a broken box, and for data that overlaps so often that it has
 *   more bytes than two such files.
 */
export function readItemData(bytes: Uint8Array, { content }: Box, idat: Uint8Array): ReadonlyMap<number, Uint8Array> {
  const reader = new FieldReader(content);
  const version = reader.read(1);
  reader.read(3); // flags
  const [offsetSize, lengthSize] = reader.readHalves();
  const [baseSize, indexSize] = reader.readHalves();
  const idSize = version < 2 ? 2 : 4;
  const numItems = reader.read(idSize);
  if (numItems > MAX_ITEMS) throw brokenAvif();
  const data = new Map<number, Uint8Array>();
  const byPlace = new Map<string, Uint8Array>();
  let numBytes = 0;
  for (let item = 0; item < numItems; item++) {
    const id = reader.read(idSize);
    const method = version === 0 ? 0 : reader.read(2) & 15;
    if (method > 1) throw brokenAvif();
    reader.read(2); // data_reference_index
    const base = reader.read(baseSize);
    const numExtents = reader.read(2);
    if (numExtents > MAX_EXTENTS) throw brokenAvif();
    const source = method === 0 ? bytes : idat;
    const extents = Array.from({ length: numExtents }, () => {
      if (version > 0) reader.read(indexSize);
      const start = base + reader.read(offsetSize);
      const length = reader.read(lengthSize);
      // No length stands for everything that follows.
      return source.subarray(start, length === 0 ? undefined : start + length);
    });
    const place = `${method} ${extents.map(({ byteOffset, byteLength }) => `${byteOffset}+${byteLength}`).join(" ")}`;
    let joined = byPlace.get(place);
    if (joined === undefined) {
      numBytes += extents.reduce((sum, { byteLength }) => sum + byteLength, 0);
      if (numBytes > 2 * bytes.byteLength) throw brokenAvif();
      joined = extents.length === 1 ? extents[0]! : Buffer.concat(extents);
      byPlace.set(place, joined);
    }
    data.set(id, joined);
  }
  return data;
}

export interface ItemReferences {
  /** Tiles of grids, and sources of other derived items, as often as they are named. */
  readonly partsOf: ReadonlyMap<number, readonly number[]>;
  /** Auxiliary pictures, such as transparency, by the item that they belong to. */
  readonly planesOf: ReadonlyMap<number, readonly number[]>;
}

/** From the boxes `iref`. Throws EngineError `invalid_image` or RangeError for a broken box. */
export function readReferences(boxes: readonly Box[]): ItemReferences {
  const partsOf = new Map<number, number[]>();
  const planesOf = new Map<number, number[]>();
  const add = (lists: Map<number, number[]>, from: number, to: number): void => {
    const list = lists.get(from) ?? [];
    lists.set(from, list);
    list.push(to);
  };
  for (const { content } of boxes) {
    const idSize = content[0] === 0 ? 2 : 4;
    for (const { type, content: entry } of readBoxes(content.subarray(4))) {
      const reader = new FieldReader(entry);
      const from = reader.read(idSize);
      const numReferences = reader.read(2);
      for (let index = 0; index < numReferences; index++) {
        const to = reader.read(idSize);
        if (type === "dimg") add(partsOf, from, to);
        if (type === "auxl") add(planesOf, to, from);
      }
    }
  }
  return { partsOf, planesOf };
}

/** Reads numbers one after the other. Throws RangeError beyond the end. Mutable. */
class FieldReader {
  readonly #view: DataView;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#view = viewOf(bytes);
  }

  /** `size`: 0, 1, 2, 3, 4 or 8 bytes; 0 stands for a field that is left out. */
  read(size: number): number {
    const at = this.#at;
    this.#at += size;
    switch (size) {
      case 0:
        return 0;
      case 1:
        return this.#view.getUint8(at);
      case 2:
        return this.#view.getUint16(at);
      case 3:
        return this.#view.getUint16(at) * 256 + this.#view.getUint8(at + 2);
      case 4:
        return this.#view.getUint32(at);
      case 8:
        return Number(this.#view.getBigUint64(at));
      default:
        throw brokenAvif();
    }
  }

  /** The high and the low half of a byte. */
  readHalves(): readonly [number, number] {
    const byte = this.read(1);
    return [byte >> 4, byte & 15];
  }
}
