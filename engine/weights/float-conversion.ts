/** Conversion between the float types of checkpoints. */
import { invariant } from "../contract/errors.ts";
import type { ElementType } from "./stored-tensor.ts";

export type FloatElementType = Extract<ElementType, "float32" | "float16" | "bfloat16">;

export const LARGEST_FLOAT16 = 65504;

export function isFloat(elementType: ElementType): elementType is FloatElementType {
  return elementType === "float32" || elementType === "float16" || elementType === "bfloat16";
}

/**
 * Little-endian elements as float32, exact for every source type. May return a view of `bytes`.
 *
 * @param bytes Starts at the beginning of its ArrayBuffer, so that it can be viewed as any type.
 */
export function toFloat32(bytes: Uint8Array<ArrayBuffer>, elementType: FloatElementType): Float32Array<ArrayBuffer> {
  invariant(bytes.byteOffset === 0, "source bytes are aligned");
  switch (elementType) {
    case "float32":
      return new Float32Array(bytes.buffer, 0, bytes.byteLength / 4);
    case "float16": {
      const values = new Float32Array(bytes.byteLength / 2);
      values.set(new Float16Array(bytes.buffer, 0, values.length));
      return values;
    }
    case "bfloat16": {
      // bfloat16 is the upper half of a float32.
      const halves = new Uint16Array(bytes.buffer, 0, bytes.byteLength / 2);
      const words = new Uint32Array(halves.length);
      for (let index = 0; index < halves.length; index++) words[index] = halves[index]! << 16;
      return new Float32Array(words.buffer);
    }
    default:
      return elementType satisfies never;
  }
}

/** Rounds to nearest, ties to even. The caller has checked that no value exceeds `LARGEST_FLOAT16`. */
export function toFloat16(values: Float32Array): Float16Array<ArrayBuffer> {
  const halves = new Float16Array(values.length);
  halves.set(values);
  return halves;
}

const SIGN_BIT = 0x8000_0000;
const INFINITY_BITS = 0x7f80_0000;
const QUIET_BIT = 0x0040;

/** Bits of each number, rounded to nearest, ties to even; what rounds beyond the largest becomes infinite. */
export function toBfloat16(values: Float32Array): Uint16Array<ArrayBuffer> {
  const words = new Uint32Array(values.buffer, values.byteOffset, values.length);
  const halves = new Uint16Array(values.length);
  for (let index = 0; index < halves.length; index++) {
    const word = words[index]!;
    const isNaN = (word & ~SIGN_BIT) > INFINITY_BITS;
    // A NaN stays one: rounding its bits could make an infinity of it.
    halves[index] = isNaN ? (word >>> 16) | QUIET_BIT : (word + 0x7fff + ((word >>> 16) & 1)) >>> 16;
  }
  return halves;
}
