/** The arithmetic of a LoRA adapter, for threads that convert weights. */
import { isFloat, toFloat32 } from "../float-conversion.ts";
import { readFilePart, TensorFault } from "../read-file-part.ts";
import { bytesPerElement } from "../safetensors.ts";
import type { LowRankUpdate, StoredTensor } from "../stored-tensor.ts";

/**
 * Adds an update to some rows of its matrix.
 *
 * @param values float32 [numRows, columns], changed in place.
 * @throws TensorFault for a tensor that ends early, and for a row without a length where the adapter gives it one.
 */
export function addLowRank(
  values: Float32Array,
  { down, up, scale, magnitudes }: LowRankUpdate,
  columns: number,
  { firstRow, numRows }: { readonly firstRow: number; readonly numRows: number },
): void {
  const [rank] = down.shape as readonly [number];
  const downRows = readElements(down, 0, rank * columns);
  const upRows = readElements(up, firstRow * rank, numRows * rank);
  for (let row = 0; row < numRows; row++) {
    const own = values.subarray(row * columns, (row + 1) * columns);
    addProduct(own, upRows.subarray(row * rank, (row + 1) * rank), downRows, scale);
  }
  if (magnitudes === null) return;
  const lengths = readElements(magnitudes, firstRow, numRows);
  for (let row = 0; row < numRows; row++) {
    const own = values.subarray(row * columns, (row + 1) * columns);
    const length = Math.sqrt(own.reduce((sum, value) => sum + value * value, 0));
    if (length === 0) throw new TensorFault(`has a row of zeros, ${firstRow + row}, whose length the adapter changes`);
    const factor = lengths[row]! / length;
    for (let column = 0; column < columns; column++) own[column]! *= factor;
  }
}

/** Adds `scale * factors x rows` to `sums`; four of the rows at once, so that sums are read and written less often. */
function addProduct(sums: Float32Array, factors: Float32Array, rows: Float32Array, scale: number): void {
  const columns = sums.length;
  let index = 0;
  for (; index + 4 <= factors.length; index += 4) {
    const [a, b, c, d] = [0, 1, 2, 3].map((offset) => factors[index + offset]! * scale) as [
      number,
      number,
      number,
      number,
    ];
    const first = index * columns;
    for (let column = 0; column < columns; column++) {
      const at = first + column;
      sums[column]! +=
        a * rows[at]! + b * rows[at + columns]! + c * rows[at + 2 * columns]! + d * rows[at + 3 * columns]!;
    }
  }
  for (; index < factors.length; index++) {
    const factor = factors[index]! * scale;
    for (let column = 0; column < columns; column++) sums[column]! += factor * rows[index * columns + column]!;
  }
}

function readElements({ file, byteOffset, elementType }: StoredTensor, first: number, count: number): Float32Array {
  if (!isFloat(elementType)) throw new TensorFault(`has an update of type ${elementType}`);
  const bytes = bytesPerElement[elementType];
  return toFloat32(readFilePart(file, byteOffset + first * bytes, count * bytes), elementType);
}
