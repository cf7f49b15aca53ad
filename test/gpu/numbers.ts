/** Random numbers in every element type, and how far results are apart. */
import type { KvElementType } from "../../engine/models/built-model.ts";
import { roundHalfToEven } from "../../engine/round-half-to-even.ts";
import { typedArrayOver } from "../../engine/runtime/element-type.ts";
import type { TensorArrays } from "../../engine/runtime/element-type.ts";
import { toBfloat16 } from "../../engine/weights/float-conversion.ts";

export type FloatType = "float32" | "float16" | "bfloat16";

/** The type of a cache that is as precise as the activations. */
export function requireFloat(elementType: KvElementType): FloatType {
  if (elementType === "int8" || elementType === "float8e4m3") throw new Error("the KV cache has 8 bits");
  return elementType;
}

/** In [-scale, scale), from a 32-bit generator. */
export function randomNumbers(count: number, seed: number, scale = 1): Float32Array {
  const random = createRandom(seed);
  return Float32Array.from({ length: count }, () => (random() * 2 - 1) * scale);
}

/** Numbers in [0, 1). */
export function createRandom(seed: number): () => number {
  let state = (seed * 2_654_435_761 + 1) >>> 0 || 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
}

export function randomBelow(random: () => number, limit: number): number {
  return Math.floor(random() * limit);
}

/** In the type's own array, rounded to the nearest. */
export function encode<E extends FloatType>(elementType: E, values: Float32Array): TensorArrays[E] {
  const type: FloatType = elementType;
  switch (type) {
    case "float32":
      return values as TensorArrays[E];
    case "float16":
      return Float16Array.from(values) as TensorArrays[E];
    case "bfloat16":
      return toBfloat16(values) as TensorArrays[E];
  }
}

export function decode(elementType: FloatType, values: TensorArrays[FloatType]): Float32Array {
  if (elementType !== "bfloat16") return Float32Array.from(values as Float32Array);
  // A loop: `Uint32Array.from` with a function takes 40 times as long.
  const words = new Uint32Array(values.length);
  for (let index = 0; index < words.length; index++) words[index] = (values[index] as number) << 16;
  return new Float32Array(words.buffer);
}

/** What the type keeps of the values. */
export function rounded(elementType: FloatType, values: Float32Array): Float32Array {
  return decode(elementType, encode(elementType, values));
}

export function emptyArray<E extends FloatType>(elementType: E, length: number): TensorArrays[E] {
  return typedArrayOver(elementType, new ArrayBuffer(length * (elementType === "float32" ? 4 : 2)));
}

const largestFloat8 = 448;
/** Exponent of the smallest normal number. */
const minExponent8 = -6;
const numMantissaBits8 = 3;

/** The nearest 8-bit float (E4M3) of each value. */
export function roundedToFloat8(values: Float32Array): Float32Array {
  return values.map((value) => {
    const exponent = Math.max(Math.floor(Math.log2(Math.abs(value))), minExponent8);
    const step = 2 ** (exponent - numMantissaBits8);
    return Math.max(-largestFloat8, Math.min(largestFloat8, roundHalfToEven(value / step) * step));
  });
}

/** The bits of the nearest 8-bit float (E4M3) of each value: sign, four bits of exponent with a bias of 7, three of mantissa. */
export function encodeFloat8(values: Float32Array): Uint8Array {
  return Uint8Array.from(roundedToFloat8(values), (value) => {
    if (Number.isNaN(value)) return 0x7f;
    const sign = value < 0 ? 0x80 : 0;
    const magnitude = Math.abs(value);
    const exponent = Math.max(Math.floor(Math.log2(magnitude)), minExponent8);
    const mantissa = magnitude * 2 ** (numMantissaBits8 - exponent);
    // Numbers below the smallest normal one lack the leading bit that is not stored.
    return sign | (((exponent - minExponent8) << numMantissaBits8) + mantissa);
  });
}

export function decodeFloat8(bits: Uint8Array): Float32Array {
  return Float32Array.from(bits, (each) => {
    const field = (each & 0x7f) >> numMantissaBits8;
    const mantissa = (each & 7) + (field === 0 ? 0 : 8);
    const value = mantissa * 2 ** (Math.max(field - 1, 0) + minExponent8 - numMantissaBits8);
    if ((each & 0x7f) === 0x7f) return NaN;
    return each & 0x80 ? -value : value;
  });
}

/** Largest difference, as a share of the largest expected magnitude; infinite where a number is none. */
export function relativeError(actual: Float32Array, expected: Float32Array): number {
  if (actual.length !== expected.length) return Infinity;
  let difference = 0;
  let magnitude = 0;
  for (let index = 0; index < expected.length; index++) {
    const distance = Math.abs(actual[index]! - expected[index]!);
    if (!(distance <= difference)) difference = Number.isNaN(distance) ? Infinity : distance;
    magnitude = Math.max(magnitude, Math.abs(expected[index]!));
  }
  return magnitude === 0 ? difference : difference / magnitude;
}

/** What rounding of inputs, intermediate values and results may make of such an error. */
export const toleranceOf: Readonly<Record<FloatType, number>> = { float32: 1e-5, float16: 4e-3, bfloat16: 3e-2 };
