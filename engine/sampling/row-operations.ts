/** Passes over one row of logits, `[vocabSize]`. NaN never compares, so it counts as the least likely. */

/** Lowest index of the largest value; -1 when every value is -Infinity or NaN. */
export function argmax(row: Float32Array): number {
  let best = -1;
  let bestValue = -Infinity;
  for (let index = 0; index < row.length; index++) {
    const value = row[index];
    if (value > bestValue) {
      bestValue = value;
      best = index;
    }
  }
  return best;
}

/** Largest value; -Infinity when there is none. */
export function maximum(row: Float32Array): number {
  let largest = -Infinity;
  for (let index = 0; index < row.length; index++) {
    const value = row[index];
    if (value > largest) largest = value;
  }
  return largest;
}

/** `row[i] * factor` in place, rounded to float32 as the typed array does. */
export function scale(row: Float32Array, factor: number): void {
  for (let index = 0; index < row.length; index++) row[index] = row[index] * factor;
}

/** Natural logarithm of the sum of the exponentials. */
export function logSumExp(row: Float32Array): number {
  const largest = maximum(row);
  let sum = 0;
  for (let index = 0; index < row.length; index++) sum += Math.exp(row[index] - largest);
  return largest + Math.log(sum);
}

/** 1-based rank of a token: how many values are at least its own. */
export function rankOf(row: Float32Array, tokenId: number): number {
  const value = row[tokenId];
  let rank = 0;
  for (let index = 0; index < row.length; index++) if (row[index] >= value) rank++;
  return rank;
}

/** Indices of the `count` largest values, largest first, equal ones by index; one pass and no sort of the row. */
export function largestIndices(row: Float32Array, count: number): number[] {
  const indices: number[] = [];
  if (count === 0) return indices;
  let smallestKept = -Infinity;
  for (let index = 0; index < row.length; index++) {
    const value = row[index];
    if (indices.length === count) {
      if (!(value > smallestKept)) continue;
      indices.pop();
    }
    let position = indices.length;
    while (position > 0 && row[indices[position - 1]] < value) position--;
    indices.splice(position, 0, index);
    smallestKept = row[indices.at(-1)!];
  }
  return indices;
}
