/**
 * Counts the frames in the data of an AV1 picture and reads their size, without decoding. The names are those of the AV1
 * Bitstream & Decoding Process Specification, sections 5.3 to 5.5.
 */

export interface Av1Frames {
  readonly numFrames: number;
  /** Pixels of the largest frame that the sequence headers allow; 0 without a sequence header. */
  readonly maxFramePixels: number;
}

const OBU_SEQUENCE_HEADER = 1;
const OBU_FRAME_HEADER = 3;
const OBU_FRAME = 6;

const EXTENSION_FLAG = 0x04;
const HAS_SIZE_FIELD = 0x02;

/** Counts every frame header: a decoder decodes all frames in the data of a picture, and shows the last. */
export function readAv1Frames(data: Uint8Array): Av1Frames {
  let numFrames = 0;
  let maxFramePixels = 0;
  for (let at = 0; at < data.byteLength;) {
    const header = data[at]!;
    // Decoders skip zeros between frames.
    if (header === 0) {
      at++;
      continue;
    }
    const type = (header >> 3) & 15;
    if (type === OBU_FRAME_HEADER || type === OBU_FRAME) numFrames++;
    // Without a size, the rest of the data belongs to it.
    if ((header & HAS_SIZE_FIELD) === 0) break;
    const sizeAt = at + ((header & EXTENSION_FLAG) === 0 ? 1 : 2);
    const { value: size, end } = readLeb128(data, sizeAt);
    if (type === OBU_SEQUENCE_HEADER) {
      maxFramePixels = Math.max(maxFramePixels, readMaxFramePixels(data.subarray(end, end + size)));
    }
    at = end + size;
  }
  return { numFrames, maxFramePixels };
}

function readLeb128(data: Uint8Array, start: number): { readonly value: number; readonly end: number } {
  let value = 0;
  for (let index = 0; index < 8; index++) {
    const byte = data[start + index] ?? 0;
    value += (byte & 0x7f) * 2 ** (7 * index);
    if ((byte & 0x80) === 0) return { value, end: start + index + 1 };
  }
  return { value, end: start + 8 };
}

/** The product of `max_frame_width_minus_1 + 1` and `max_frame_height_minus_1 + 1` of a sequence header. */
function readMaxFramePixels(data: Uint8Array): number {
  const bits = new BitReader(data);
  bits.read(4); // seq_profile, still_picture
  const isReduced = bits.read(1) === 1;
  if (isReduced) bits.read(5);
  else skipOperatingPoints(bits);
  const numWidthBits = bits.read(4) + 1;
  const numHeightBits = bits.read(4) + 1;
  const width = bits.read(numWidthBits) + 1;
  return width * (bits.read(numHeightBits) + 1);
}

function skipOperatingPoints(bits: BitReader): void {
  let numDelayBits = 0;
  const hasTimingInfo = bits.read(1) === 1;
  if (hasTimingInfo) {
    bits.read(32); // num_units_in_display_tick
    bits.read(32); // time_scale
    const hasEqualIntervals = bits.read(1) === 1;
    if (hasEqualIntervals) skipUvlc(bits);
    const hasDecoderModel = bits.read(1) === 1;
    if (hasDecoderModel) {
      numDelayBits = bits.read(5) + 1;
      bits.read(32); // num_units_in_decoding_tick
      bits.read(10); // the lengths of two other fields
    }
  }
  const hasDisplayDelay = bits.read(1) === 1;
  const numOperatingPoints = bits.read(5) + 1;
  for (let point = 0; point < numOperatingPoints; point++) {
    bits.read(12); // operating_point_idc
    const level = bits.read(5);
    if (level > 7) bits.read(1);
    // Two delays and a flag.
    if (numDelayBits > 0 && bits.read(1) === 1) bits.skip(2 * numDelayBits + 1);
    if (hasDisplayDelay && bits.read(1) === 1) bits.read(4);
  }
}

function skipUvlc(bits: BitReader): void {
  let numZeros = 0;
  while (numZeros < 32 && bits.read(1) === 0) numZeros++;
  if (numZeros < 32) bits.skip(numZeros);
}

/** Reads the highest bit of each byte first; zeros beyond the end. Mutable. */
class BitReader {
  readonly #data: Uint8Array;
  #at = 0;

  constructor(data: Uint8Array) {
    this.#data = data;
  }

  read(numBits: number): number {
    let value = 0;
    for (let index = 0; index < numBits; index++, this.#at++) {
      value = value * 2 + (((this.#data[this.#at >> 3] ?? 0) >> (7 - (this.#at & 7))) & 1);
    }
    return value;
  }

  skip(numBits: number): void {
    this.#at += numBits;
  }
}
