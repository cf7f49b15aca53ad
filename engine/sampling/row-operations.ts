/** Passes over one row of logits, `[vocabSize]`. Comparisons with NaN are false, so it counts as least likely. */
import { expOfRest, expOfStep, NUM_STEPS, STEPS_PER_UNIT } from "./draw/exponential.ts";

/**
 * Largest value; -Infinity if there is none. Four running maxima avoid dependencies between comparisons. The compiler
 * also does not inline a function of this size into code that it never fully optimises.
 */
export function maximum(row: Float32Array): number {
  let first = -Infinity;
  let second = -Infinity;
  let third = -Infinity;
  let fourth = -Infinity;
  const numQuarters = row.length & ~3;
  for (let index = 0; index < numQuarters; index += 4) {
    const a = row[index]!;
    const b = row[index + 1]!;
    const c = row[index + 2]!;
    const d = row[index + 3]!;
    if (a > first) first = a;
    if (b > second) second = b;
    if (c > third) third = c;
    if (d > fourth) fourth = d;
  }
  for (let index = numQuarters; index < row.length; index++) if (row[index]! > first) first = row[index]!;
  return Math.max(first, second, third, fourth);
}

/** `row[i] * factor` in place, rounded to float32 as the typed array does. */
export function scale(row: Float32Array, factor: number): void {
  const numQuarters = row.length & ~3;
  for (let index = 0; index < numQuarters; index += 4) {
    row[index] = row[index]! * factor;
    row[index + 1] = row[index + 1]! * factor;
    row[index + 2] = row[index + 2]! * factor;
    row[index + 3] = row[index + 3]! * factor;
  }
  for (let index = numQuarters; index < row.length; index++) row[index] = row[index]! * factor;
}

/** Sets values below `smallestKept` to -Infinity. Writes every value, which is faster than branching. */
export function dropBelow(row: Float32Array, smallestKept: number): void {
  const numQuarters = row.length & ~3;
  for (let index = 0; index < numQuarters; index += 4) {
    const a = row[index]!;
    const b = row[index + 1]!;
    const c = row[index + 2]!;
    const d = row[index + 3]!;
    row[index] = a < smallestKept ? -Infinity : a;
    row[index + 1] = b < smallestKept ? -Infinity : b;
    row[index + 2] = c < smallestKept ? -Infinity : c;
    row[index + 3] = d < smallestKept ? -Infinity : d;
  }
  for (let index = numQuarters; index < row.length; index++) if (row[index]! < smallestKept) row[index] = -Infinity;
}

/** Natural logarithm of the sum of the exponentials, exact to 3e-9; -Infinity if all values are -Infinity or NaN. */
export function logSumExp(row: Float32Array): number {
  const largest = maximum(row);
  if (largest === -Infinity || largest === Infinity) return largest;
  let sum = 0;
  for (let index = 0; index < row.length; index++) {
    const position = (largest - row[index]!) * STEPS_PER_UNIT;
    if (position < NUM_STEPS) {
      const step = position | 0;
      sum += expOfStep[step]! * expOfRest(position - step);
    }
  }
  return largest + Math.log(sum);
}

/** 1-based rank of a value in the row: the number of values that are at least as large. */
export function rankOf(row: Float32Array, value: number): number {
  let rank = 0;
  for (let index = 0; index < row.length; index++) if (row[index]! >= value) rank++;
  return rank;
}

/** Indices of the `count` largest values, largest first, equal values by index. One pass, without sorting the row. */
export function largestIndices(row: Float32Array, count: number): number[] {
  const indices: number[] = [];
  if (count === 0) return indices;
  let smallestKept = -Infinity;
  const numQuarters = row.length & ~3;
  for (let index = 0; index < row.length; index++) {
    // Most of a row is below the values kept so far: skip four at a time.
    while (
      index < numQuarters &&
      indices.length === count &&
      !(row[index]! > smallestKept) &&
      !(row[index + 1]! > smallestKept) &&
      !(row[index + 2]! > smallestKept) &&
      !(row[index + 3]! > smallestKept)
    ) {
      index += 4;
    }
    if (index >= row.length) break;
    const value = row[index]!;
    if (indices.length === count) {
      if (!(value > smallestKept)) continue;
      indices.pop();
    }
    let position = indices.length;
    while (position > 0 && row[indices[position - 1]!]! < value) position--;
    indices.splice(position, 0, index);
    smallestKept = row[indices[indices.length - 1]!]!;
  }
  return indices;
}
