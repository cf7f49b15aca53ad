/** Reads the first bits of coded pictures: whether they are shown, and whether decoding can start with them. */

import { FieldPairs } from "./h264-fields.ts";

export interface CodedPicture {
  /** False for pictures that others only refer to, and for the second field of a frame. */
  readonly isShown: boolean;
  /** Whether this picture and those shown after it need no picture before it. */
  readonly isStart: boolean;
  /** Whether the picture refers to pictures before the start that it follows, so that decoders skip it after a start. */
  readonly isLeading: boolean;
  /** Of a key picture: whether all pictures are leading that follow it and are shown before it. */
  readonly opensGroup: boolean;
  /** False if no other picture refers to this one, so that decoding may leave it out. */
  readonly isReferred: boolean;
  /** Whether it is the second field of the frame whose first field is the picture before. */
  readonly isSecondField: boolean;
}

/** A picture that does not depend on its neighbours in any of the ways above. */
const plain = { isShown: true, isLeading: false, opensGroup: false, isReferred: true, isSecondField: false };

/** Reads packets of one stream in decoding order. `isKey` is the container's word for it. */
export type PictureReader = (bytes: Uint8Array, isKey: boolean) => CodedPicture;

/** @param extradata The codec's header in the container, or null. */
export function pictureReaderOf(decoder: string, extradata: Uint8Array | null): PictureReader {
  switch (decoder) {
    case "vp8":
      return readVp8;
    case "vp9":
      return readVp9;
    case "h264":
      return h264Reader(extradata);
    case "hevc":
      return (bytes) => readHevc(bytes, nalLengthBytes(extradata, 21));
    case "mpeg4":
      return (_, isKey) => ({ ...plain, isStart: isKey, opensGroup: isKey });
    case "mpeg1video":
    case "mpeg2video":
      return (bytes, isKey) => ({ ...plain, isStart: isKey, opensGroup: isKey && !isClosedMpegGroup(bytes) });
    default:
      return (_, isKey) => ({ ...plain, isStart: isKey });
  }
}

/** The first bits of a frame, lowest first: inter frame, version (3), shown. RFC 6386, 9.1. */
function readVp8(bytes: Uint8Array, isKey: boolean): CodedPicture {
  const first = bytes[0] ?? 0;
  return { ...plain, isShown: (first & 0x10) !== 0, isStart: isKey && (first & 1) === 0 };
}

/** A superframe, which ends with a marker, shows one of its frames. Else: marker (2), profile (2), shown again, ... */
function readVp9(bytes: Uint8Array, isKey: boolean): CodedPicture {
  const [first = 0, second = 0] = bytes;
  const isSuperframe = ((bytes.at(-1) ?? 0) & 0xe0) === 0xc0;
  // Profile 3 has one reserved bit more.
  const bits = (first & 0x30) === 0x30 ? ((first << 8) | second) << 1 : (first << 8) | second;
  const showsExisting = (bits & 0x08_00) !== 0;
  return { ...plain, isShown: isSuperframe || showsExisting || (bits & 0x02_00) !== 0, isStart: isKey };
}

function h264Reader(extradata: Uint8Array | null): PictureReader {
  const lengthBytes = nalLengthBytes(extradata, 4);
  const fields = new FieldPairs();
  if (extradata !== null) for (const unit of parameterUnits(extradata)) fields.addParameters(unit);
  return (bytes, isKey) => readH264(bytes, isKey, lengthBytes, fields);
}

/** Decoding starts at pictures of type IDR only. Others may need several pictures until all of the frame is renewed. */
function readH264(bytes: Uint8Array, isKey: boolean, lengthBytes: number, fields: FieldPairs): CodedPicture {
  let slice: number | undefined;
  let isSecondField = false;
  for (const unit of nalUnits(bytes, lengthBytes)) {
    const type = unit[0]! & 0x1f;
    if (type < 1 || type > 5) {
      fields.addParameters(unit);
      continue;
    }
    slice = unit[0]!;
    isSecondField = fields.endsFrame(unit);
    break;
  }
  const isInstantRefresh = isKey && slice !== undefined && (slice & 0x1f) === 5;
  // All slices of a picture have the same two bits above the type, 0 for a picture without references.
  const isReferred = slice === undefined || (slice & 0x60) !== 0;
  if (isSecondField) return { ...plain, isShown: false, isStart: false, isReferred, isSecondField };
  return { ...plain, isStart: isInstantRefresh, opensGroup: isKey && !isInstantRefresh, isReferred };
}

/** Types of slices: 8 and 9 are skipped leading pictures, 16 to 21 start a sequence that they may lead. */
function readHevc(bytes: Uint8Array, lengthBytes: number): CodedPicture {
  for (const [header = 0] of nalUnits(bytes, lengthBytes)) {
    const type = (header >> 1) & 0x3f;
    if (type < 32) return { ...plain, isStart: type >= 16 && type <= 21, isLeading: type === 8 || type === 9 };
  }
  return { ...plain, isStart: false };
}

/** The bit after the 25 bits of time in the header of a group of pictures, 00 00 01 B8. Without a header, it is open. */
function isClosedMpegGroup(bytes: Uint8Array): boolean {
  for (let start = findStartCode(bytes, 0); start !== -1; start = findStartCode(bytes, start)) {
    if (bytes[start] === 0xb8) return ((bytes[start + 4] ?? 0) & 0x40) !== 0;
    // A picture begins.
    if (bytes[start] === 0) return false;
  }
  return false;
}

/** Bytes of the length before each unit; 0 for start codes. */
function nalLengthBytes(extradata: Uint8Array | null, offset: number): number {
  return extradata?.[0] === 1 ? ((extradata[offset] ?? 3) & 3) + 1 : 0;
}

/** The first units of a packet, none of them empty. The last one may end with bytes behind it. */
function* nalUnits(bytes: Uint8Array, lengthBytes: number): Generator<Uint8Array> {
  let position = 0;
  for (let unit = 0; unit < MAX_NAL_UNITS; unit++) {
    let next = bytes.byteLength;
    if (lengthBytes === 0) {
      position = findStartCode(bytes, position);
      if (position === -1) return;
    } else {
      let length = 0;
      for (let index = 0; index < lengthBytes; index++) length = length * 256 + (bytes[position + index] ?? 0);
      position += lengthBytes;
      next = position + length;
    }
    if (position >= bytes.byteLength) return;
    yield bytes.subarray(position, next);
    if (lengthBytes !== 0) position = next;
  }
}

/** The parameter sets of the header of H.264: in MP4, lists of units with their number before each list. */
function* parameterUnits(extradata: Uint8Array): Generator<Uint8Array> {
  if (extradata[0] !== 1) {
    yield* nalUnits(extradata, 0);
    return;
  }
  let position = 5;
  for (const mask of [0x1f, 0xff]) {
    for (let left = (extradata[position++] ?? 0) & mask; left > 0; left--) {
      const start = position + 2;
      position = start + (extradata[position] ?? 0) * 256 + (extradata[position + 1] ?? 0);
      if (start < extradata.byteLength) yield extradata.subarray(start, position);
    }
  }
}

/** Parameter sets and messages before the slices of a picture: more than encoders write. */
const MAX_NAL_UNITS = 64;

/** Position after the next 00 00 01; -1 if there is none, or nothing follows it. */
function findStartCode(bytes: Uint8Array, from: number): number {
  for (let index = from; index + 3 < bytes.byteLength; index++) {
    if (bytes[index] === 0 && bytes[index + 1] === 0 && bytes[index + 2] === 1) return index + 3;
  }
  return -1;
}
