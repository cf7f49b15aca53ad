/**
 * The sums of a resize, 128 bits at a time. This file is AssemblyScript: `npm run build:kernels` compiles it to
 * filter.wasm, a test compares the two, and only engine/images/resample.ts calls it.
 *
 * WebAssembly multiplies 8 pairs of 16-bit numbers and adds neighbours in one instruction. A weight has 23 bits, so it
 * is split into two numbers, `high * 2^LOW_BITS + low`, that are summed separately and joined at the end: the same sum
 * modulo 2^32 as Pillow's. Weights are stored by pairs of taps: both high parts, then both low parts, 16 bits each.
 */

/** Fraction bits of a weight, as in resample-coefficients.ts. */
const PRECISION_BITS = 22;
/** As in resample.ts. */
const LOW_BITS = 15;
const HALF = 1 << (PRECISION_BITS - 1);

/** `weights` repeats the weights of one pair. Each 32-bit lane of `pairs` has two pixels' samples of one channel. */
function addPairs(sums: v128, pairs: v128, weights: v128): v128 {
  return i32x4.add(sums, i32x4.dot_i16x8_s(pairs, weights));
}

/** Of four pixels rgbrgbrgbrgb, the first two as r0 r1, g0 g1, b0 b1, and an unused lane. */
function firstPair(pixels: v128): v128 {
  return v128.shuffle<i8>(pixels, i32x4.splat(0), 0, 16, 3, 16, 1, 16, 4, 16, 2, 16, 5, 16, 16, 16, 16, 16);
}

function secondPair(pixels: v128): v128 {
  return v128.shuffle<i8>(pixels, i32x4.splat(0), 6, 16, 9, 16, 7, 16, 10, 16, 8, 16, 11, 16, 16, 16, 16, 16);
}

function join(high: v128, low: v128): v128 {
  return i32x4.shr_s(i32x4.add(i32x4.shl(high, LOW_BITS), low), PRECISION_BITS);
}

/** The sums of 16 samples, rounded and clamped to bytes. */
function toBytes(
  high0: v128,
  low0: v128,
  high1: v128,
  low1: v128,
  high2: v128,
  low2: v128,
  high3: v128,
  low3: v128,
): v128 {
  return i8x16.narrow_i16x8_u(
    i16x8.narrow_i32x4_s(join(high0, low0), join(high1, low1)),
    i16x8.narrow_i32x4_s(join(high2, low2), join(high3, low3)),
  );
}

/**
 * Filters each of `numRows` rows of RGB pixels to `numColumns` pixels. `taps` has two 32-bit numbers per column: where
 * its first pixel starts in the row, and the byte length of its weights, 16 for every four pixels. Strides are in
 * bytes. Reads up to 15 bytes after the last pixel of a row and writes one byte after the last pixel of an output row.
 *
 * Four rows are filtered together, so that a weight is loaded once for all of them. If fewer are left, the last one is
 * repeated.
 */
export function filterRows(
  input: usize,
  inputStride: usize,
  numRows: usize,
  taps: usize,
  weights: usize,
  weightsStride: usize,
  numColumns: usize,
  output: usize,
  outputStride: usize,
): void {
  const zero = i32x4.splat(0);
  const half = i32x4.splat(HALF);
  for (let row: usize = 0; row < numRows; row += 4) {
    const next1: usize = row + 1 < numRows ? 1 : 0;
    const next2: usize = row + 2 < numRows ? 1 : 0;
    const next3: usize = row + 3 < numRows ? 1 : 0;
    const row0 = input + row * inputStride;
    const row1 = row0 + next1 * inputStride;
    const row2 = row1 + next2 * inputStride;
    const row3 = row2 + next3 * inputStride;
    let to0 = output + row * outputStride;
    let to1 = to0 + next1 * outputStride;
    let to2 = to1 + next2 * outputStride;
    let to3 = to2 + next3 * outputStride;
    for (let column: usize = 0; column < numColumns; column++) {
      let from: usize = load<u32>(taps + column * 8);
      let weight = weights + column * weightsStride;
      const end = weight + load<u32>(taps + column * 8, 4);
      let high0 = zero;
      let high1 = zero;
      let high2 = zero;
      let high3 = zero;
      let low0 = half;
      let low1 = half;
      let low2 = half;
      let low3 = half;
      while (weight < end) {
        const firstHigh = v128.load32_splat(weight);
        const firstLow = v128.load32_splat(weight, 4);
        const secondHigh = v128.load32_splat(weight, 8);
        const secondLow = v128.load32_splat(weight, 12);
        let pixels = v128.load(row0 + from);
        high0 = addPairs(addPairs(high0, firstPair(pixels), firstHigh), secondPair(pixels), secondHigh);
        low0 = addPairs(addPairs(low0, firstPair(pixels), firstLow), secondPair(pixels), secondLow);
        pixels = v128.load(row1 + from);
        high1 = addPairs(addPairs(high1, firstPair(pixels), firstHigh), secondPair(pixels), secondHigh);
        low1 = addPairs(addPairs(low1, firstPair(pixels), firstLow), secondPair(pixels), secondLow);
        pixels = v128.load(row2 + from);
        high2 = addPairs(addPairs(high2, firstPair(pixels), firstHigh), secondPair(pixels), secondHigh);
        low2 = addPairs(addPairs(low2, firstPair(pixels), firstLow), secondPair(pixels), secondLow);
        pixels = v128.load(row3 + from);
        high3 = addPairs(addPairs(high3, firstPair(pixels), firstHigh), secondPair(pixels), secondHigh);
        low3 = addPairs(addPairs(low3, firstPair(pixels), firstLow), secondPair(pixels), secondLow);
        weight += 16;
        from += 12;
      }
      const samples = toBytes(high0, low0, high1, low1, high2, low2, high3, low3);
      // Stores four bytes for three samples; the fourth is overwritten by the next column or unused.
      v128.store32_lane(to0, samples, 0);
      v128.store32_lane(to1, samples, 1);
      v128.store32_lane(to2, samples, 2);
      v128.store32_lane(to3, samples, 3);
      to0 += 3;
      to1 += 3;
      to2 += 3;
      to3 += 3;
    }
  }
}

/**
 * Filters `2 * numPairs` rows of `stride` bytes, a multiple of 16, into one row, whatever their samples are. `output`
 * has `stride` bytes.
 */
export function filterColumns(input: usize, stride: usize, weights: usize, numPairs: usize, output: usize): void {
  const zero = i32x4.splat(0);
  const half = i32x4.splat(HALF);
  const end = weights + numPairs * 8;
  for (let column: usize = 0; column < stride; column += 16) {
    let high0 = zero;
    let high1 = zero;
    let high2 = zero;
    let high3 = zero;
    let low0 = half;
    let low1 = half;
    let low2 = half;
    let low3 = half;
    let from = input + column;
    for (let weight = weights; weight < end; weight += 8) {
      const high = v128.load32_splat(weight);
      const low = v128.load32_splat(weight, 4);
      const above = v128.load(from);
      const below = v128.load(from + stride);
      from += 2 * stride;
      const left = v128.shuffle<i8>(above, below, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      const right = v128.shuffle<i8>(above, below, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
      let pairs = i16x8.extend_low_i8x16_u(left);
      high0 = addPairs(high0, pairs, high);
      low0 = addPairs(low0, pairs, low);
      pairs = i16x8.extend_high_i8x16_u(left);
      high1 = addPairs(high1, pairs, high);
      low1 = addPairs(low1, pairs, low);
      pairs = i16x8.extend_low_i8x16_u(right);
      high2 = addPairs(high2, pairs, high);
      low2 = addPairs(low2, pairs, low);
      pairs = i16x8.extend_high_i8x16_u(right);
      high3 = addPairs(high3, pairs, high);
      low3 = addPairs(low3, pairs, low);
    }
    v128.store(output + column, toBytes(high0, low0, high1, low1, high2, low2, high3, low3));
  }
}
