/** Finds the second fields of H.264 frames whose two fields are coded one after the other (ITU-T H.264, 7.3 and 7.4.1.2.4). */

/** Types of units. */
const SEQUENCE_PARAMETERS = 7;
const PICTURE_PARAMETERS = 8;

/** Profiles whose sequence parameters describe the format of the chroma. */
const profilesWithChroma: ReadonlySet<number> = new Set([100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135]);

/** More bits than the values before the last one that is read have, scaling lists included. */
const MAX_UNIT_BYTES = 1024;

interface SequenceParameters {
  readonly hasSeparatePlanes: boolean;
  readonly numBitsOfFrameNumber: number;
  /** Whether no picture is a field. */
  readonly hasOnlyFrames: boolean;
}

interface Field {
  readonly isBottom: boolean;
  readonly frameNumber: number;
}

/** Reads the units of a stream in decoding order. Mutable: the parameters so far, and a field that waits for its second. */
export class FieldPairs {
  readonly #sequences = new Map<number, SequenceParameters>();
  /** Ids of sequence parameters by ids of picture parameters. */
  readonly #pictures = new Map<number, number>();
  #first: Field | null = null;

  /** @param unit Without start code or length; ignored if it is no parameter set. */
  addParameters(unit: Uint8Array): void {
    const type = (unit[0] ?? 0) & 0x1f;
    if (type !== SEQUENCE_PARAMETERS && type !== PICTURE_PARAMETERS) return;
    const bits = new UnitBits(unit);
    if (type === PICTURE_PARAMETERS) this.#pictures.set(bits.unsigned(), bits.unsigned());
    else this.#addSequence(bits);
  }

  /**
   * Whether the picture of a slice is the second field of the frame of the picture before.
   *
   * @param unit The first slice of the picture.
   */
  endsFrame(unit: Uint8Array): boolean {
    const field = this.#readField(unit);
    const first = this.#first;
    const isSecond =
      field !== null && first !== null && field.isBottom !== first.isBottom && field.frameNumber === first.frameNumber;
    this.#first = isSecond ? null : field;
    return isSecond;
  }

  #addSequence(bits: UnitBits): void {
    const profile = bits.fixed(8);
    bits.fixed(16);
    const id = bits.unsigned();
    const hasSeparatePlanes = profilesWithChroma.has(profile) && readChroma(bits);
    const numBitsOfFrameNumber = bits.unsigned() + 4;
    skipOrderCount(bits);
    // Reference frames, gaps, width and height.
    bits.unsigned();
    bits.fixed(1);
    bits.unsigned();
    bits.unsigned();
    this.#sequences.set(id, { hasSeparatePlanes, numBitsOfFrameNumber, hasOnlyFrames: bits.fixed(1) === 1 });
  }

  /** Null for a frame, and without its parameters. */
  #readField(unit: Uint8Array): Field | null {
    const bits = new UnitBits(unit);
    // Its first macroblock and its type.
    bits.unsigned();
    bits.unsigned();
    const sequence = this.#sequences.get(this.#pictures.get(bits.unsigned()) ?? -1);
    if (sequence === undefined || sequence.hasOnlyFrames) return null;
    if (sequence.hasSeparatePlanes) bits.fixed(2);
    const frameNumber = bits.fixed(sequence.numBitsOfFrameNumber);
    return bits.fixed(1) === 1 ? { isBottom: bits.fixed(1) === 1, frameNumber } : null;
  }
}

/** Returns whether the three planes are coded one by one. */
function readChroma(bits: UnitBits): boolean {
  const format = bits.unsigned();
  const hasSeparatePlanes = format === 3 && bits.fixed(1) === 1;
  // Depths of luma and chroma, and lossless coding.
  bits.unsigned();
  bits.unsigned();
  bits.fixed(1);
  if (bits.fixed(1) === 0) return hasSeparatePlanes;
  for (let list = 0; list < (format === 3 ? 12 : 8); list++) {
    if (bits.fixed(1) === 1) skipScalingList(bits, list < 6 ? 16 : 64);
  }
  return hasSeparatePlanes;
}

function skipScalingList(bits: UnitBits, length: number): void {
  let scale = 8;
  for (let index = 0; index < length && scale !== 0; index++) scale = (scale + bits.signed() + 256) % 256;
}

function skipOrderCount(bits: UnitBits): void {
  const type = bits.unsigned();
  if (type === 0) bits.unsigned();
  if (type !== 1) return;
  bits.fixed(1);
  bits.signed();
  bits.signed();
  for (let left = Math.min(bits.unsigned(), 255); left > 0; left--) bits.signed();
}

/** Reads the bits of a unit behind its header. Behind the end, all are 0. Mutable: the place. */
class UnitBits {
  readonly #bytes: number[] = [];
  #position = 0;

  constructor(unit: Uint8Array) {
    let numZeros = 0;
    for (const byte of unit.subarray(1, MAX_UNIT_BYTES)) {
      // A 3 behind two zeros was put there, so that no start code arises.
      if (numZeros >= 2 && byte === 3) numZeros = 0;
      else {
        this.#bytes.push(byte);
        numZeros = byte === 0 ? numZeros + 1 : 0;
      }
    }
  }

  fixed(numBits: number): number {
    let value = 0;
    for (let bit = 0; bit < numBits; bit++, this.#position++) {
      value = value * 2 + (((this.#bytes[this.#position >> 3] ?? 0) >> (7 - (this.#position & 7))) & 1);
    }
    return value;
  }

  /** Exp-Golomb code: as many zeros as bits follow the first 1. */
  unsigned(): number {
    let numZeros = 0;
    while (numZeros < 32 && this.fixed(1) === 0) numZeros++;
    return 2 ** numZeros - 1 + this.fixed(numZeros);
  }

  signed(): number {
    const code = this.unsigned();
    return code % 2 === 1 ? (code + 1) / 2 : -code / 2;
  }
}
