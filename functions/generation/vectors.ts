/** Arithmetic of embeddings. */

/** In place. A vector of zeros stays as it is. */
export function scaledToLengthOne(vector: Float32Array): Float32Array {
  const length = Math.sqrt(dot(vector, vector));
  if (length === 0) return vector;
  for (let index = 0; index < vector.length; index++) vector[index]! /= length;
  return vector;
}

/** 0 if one is a vector of zeros. */
export function cosine(left: Float32Array, right: Float32Array): number {
  const length = Math.sqrt(dot(left, left) * dot(right, right));
  return length === 0 ? 0 : dot(left, right) / length;
}

/** Late interaction: for each vector of the query, its largest cosine with one of the document; their sum. */
export function maxSimilarity(query: readonly Float32Array[], document: readonly Float32Array[]): number {
  return query.reduce((sum, vector) => sum + Math.max(...document.map((other) => dot(vector, other))), 0);
}

/** @param values Row-major [rows, size]. Returns copies of length 1. */
export function unitRows(values: Float32Array, numRows: number): readonly Float32Array[] {
  const size = values.length / numRows;
  return Array.from({ length: numRows }, (_, row) => scaledToLengthOne(values.slice(row * size, (row + 1) * size)));
}

function dot(left: Float32Array, right: Float32Array): number {
  let sum = 0;
  for (let index = 0; index < left.length; index++) sum += left[index]! * right[index]!;
  return sum;
}
