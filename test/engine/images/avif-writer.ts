/** Writes AVIFs box by box, as no encoder would write them (ISO/IEC 14496-12 and 23008-12). */

export interface AvifItem {
  readonly id: number;
  readonly type: "av01" | "grid" | "iovl" | "Exif";
  /** Parts of the payload. */
  readonly extents: readonly { readonly offset: number; readonly length: number }[];
  /** Of `properties`, from 1. */
  readonly properties?: readonly number[];
}

export interface AvifReference {
  readonly type: "dimg" | "auxl" | "cdsc";
  readonly from: number;
  readonly to: readonly number[];
}

export interface AvifParts {
  readonly payload: Uint8Array;
  /** The first is the primary one. */
  readonly items: readonly AvifItem[];
  readonly properties: readonly Uint8Array[];
  readonly references?: readonly AvifReference[];
}

/** The payload comes first, so that its place does not depend on the rest. */
export function writeAvif({ payload, items, properties, references = [] }: AvifParts): Buffer {
  const start = box("ftyp", Buffer.from("avif\0\0\0\0avifmif1miaf", "latin1"));
  const payloadAt = start.byteLength + 8;
  const places = items.map(({ id, extents }) =>
    Buffer.concat([
      numbers(2, id, 0, extents.length),
      numbers(4, ...extents.flatMap(({ offset, length }) => [payloadAt + offset, length])),
    ]),
  );
  const types = items.map(({ id, type }) =>
    box("infe", numbers(4, 2 << 24), numbers(2, id, 0), Buffer.from(`${type}\0`, "latin1")),
  );
  const owners = items.filter((item) => (item.properties ?? []).length > 0);
  const associations = owners.map(({ id, properties: indices = [] }) =>
    Buffer.concat([numbers(2, id), numbers(1, indices.length, ...indices)]),
  );
  const meta = [
    box("hdlr", numbers(4, 0, 0), Buffer.from("pict", "latin1"), Buffer.alloc(13)),
    box("pitm", numbers(4, 0), numbers(2, items[0]!.id)),
    box("iloc", numbers(4, 0), numbers(1, 0x44, 0x00), numbers(2, items.length), ...places),
    box("iinf", numbers(4, 0), numbers(2, items.length), ...types),
    box("iprp", box("ipco", ...properties), box("ipma", numbers(4, 0, owners.length), ...associations)),
    ...(references.length === 0 ? [] : [box("iref", numbers(4, 0), ...references.map(writeReference))]),
  ];
  return Buffer.concat([start, box("mdat", payload), box("meta", numbers(4, 0), ...meta)]);
}

function writeReference({ type, from, to }: AvifReference): Buffer {
  return box(type, numbers(2, from, to.length, ...to));
}

/** The property `ispe`: the size in the header. */
export function sizeProperty(width: number, height: number): Buffer {
  return box("ispe", numbers(4, 0, width, height));
}

/** The property `irot`: a turn by a quarter. */
export function turnProperty(): Buffer {
  return box("irot", numbers(1, 1));
}

/** The data of a grid of tiles. */
export function gridData(rows: number, columns: number, width: number, height: number): Buffer {
  return Buffer.concat([numbers(1, 0, 0, rows - 1, columns - 1), numbers(2, width, height)]);
}

/** The frames of an AVIF with one item, and its property `av1C`. */
export function framesOf(avif: Buffer): { readonly frames: Buffer; readonly configuration: Buffer } {
  const at = avif.indexOf("av1C") - 4;
  return {
    frames: avif.subarray(avif.indexOf("mdat") + 4),
    configuration: avif.subarray(at, at + avif.readUInt32BE(at)),
  };
}

function box(type: string, ...content: readonly Uint8Array[]): Buffer {
  const body = Buffer.concat(content);
  const head = Buffer.concat([numbers(4, 8 + body.byteLength), Buffer.from(type, "latin1")]);
  return Buffer.concat([head, body]);
}

/** Big-endian, of so many bytes each. */
function numbers(numBytes: 1 | 2 | 4, ...values: readonly number[]): Buffer {
  const bytes = Buffer.alloc(numBytes * values.length);
  for (const [index, value] of values.entries()) bytes.writeUIntBE(value, index * numBytes, numBytes);
  return bytes;
}
