import { assert, boolean, constantFrom, integer, property } from "fast-check";
import { expect, test } from "vitest";

import { toBfloat16, toFloat32 } from "../../../engine/weights/float-conversion.ts";

function widened(halves: Uint16Array<ArrayBuffer>): Float32Array {
  return toFloat32(new Uint8Array(halves.buffer), "bfloat16");
}

test("every bfloat16 stays as it is, but for the payload of a NaN", () => {
  const all = Uint16Array.from({ length: 2 ** 16 }, (_, bits) => bits);
  const values = widened(all);
  const again = toBfloat16(values);
  for (const [bits, made] of again.entries()) {
    const isNaN = Number.isNaN(values[bits]);
    // A float32 that is not a number may be made quiet on its way through an array.
    expect(isNaN ? Number.isNaN(widened(Uint16Array.of(made))[0]) : made === bits).toBe(true);
  }
});

test("floats between two of bfloat16 take the nearer one, halves the even one", () => {
  const words = integer({ min: 0, max: 0x7f7e_ffff }).chain((word) => constantFrom(word, word | 0x8000));
  assert(
    property(words, boolean(), (word, isNegative) => {
      const value = new Float32Array(Uint32Array.of(isNegative ? (word | 0x8000_0000) >>> 0 : word).buffer);
      const [made] = toBfloat16(value);
      const lower = (isNegative ? 0x8000 : 0) + (word >>> 16);
      const [below, above] = widened(Uint16Array.of(lower, lower + 1));
      const [toBelow, toAbove] = [Math.abs(value[0]! - below!), Math.abs(above! - value[0]!)];
      const nearest = toBelow < toAbove || (toBelow === toAbove && lower % 2 === 0) ? lower : lower + 1;
      expect(made).toBe(nearest);
    }),
  );
});

test("a NaN whose upper half is an infinity's stays a NaN, and large floats become infinite", () => {
  const nan = new Float32Array(Uint32Array.of(0x7f80_0001).buffer);
  expect(Number.isNaN(widened(toBfloat16(nan))[0])).toBe(true);
  const largest = new Float32Array(Uint32Array.of(0x7f7f_ffff, 0xff7f_ffff).buffer);
  expect([...widened(toBfloat16(largest))]).toEqual([Infinity, -Infinity]);
});
