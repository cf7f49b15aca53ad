/** Reads rows of matrices of floating point numbers in 8 and 4 bits. */
import { readColumns, readFilePart, TensorFault, toRows } from "../read-file-part.ts";
import type { Float4Matrix, Float8Matrix } from "../stored-tensor.ts";
import type { RowRange } from "./grouped-rows.ts";
import { readScaleRows, readScales } from "./scales.ts";
import { e2m1Values, e4m3Values } from "./small-floats.ts";

export function dequantizeFloat8(
  {
    codes: tensor,
    scales: scaleTensor,
    blockShape: [blockRows, blockColumns],
    firstRow: firstInBlocks = 0,
  }: Float8Matrix,
  numColumns: number,
  { firstRow, numRows }: RowRange,
): Float32Array<ArrayBuffer> {
  const codes =
    tensor.columnStride === undefined
      ? readFilePart(tensor.file, tensor.byteOffset + firstRow * numColumns, numRows * numColumns)
      : toRows(readColumns(tensor, numColumns, { firstRow, numRows }), numColumns);
  const scales = readScales(scaleTensor);
  const blocksPerRow = Math.ceil(numColumns / blockColumns);
  const values = new Float32Array(codes.length);
  for (let row = 0; row < numRows; row++) {
    const firstScale = Math.floor((firstInBlocks + firstRow + row) / blockRows) * blocksPerRow;
    for (let column = 0; column < numColumns; column++) {
      const index = row * numColumns + column;
      const value = e4m3Values[codes[index]!]!;
      if (Number.isNaN(value)) throw new TensorFault("has a value that is not a number");
      values[index] = value * scales[firstScale + Math.floor(column / blockColumns)]!;
    }
  }
  return values;
}

export function dequantizeFloat4(
  { codes: { file, byteOffset }, scales: scaleTensor, blockSize, common }: Float4Matrix,
  numColumns: number,
  { firstRow, numRows }: RowRange,
): Float32Array<ArrayBuffer> {
  const rowBytes = numColumns / 2;
  const codes = readFilePart(file, byteOffset + firstRow * rowBytes, numRows * rowBytes);
  const scales = readScaleRows(scaleTensor, { firstRow, numRows });
  if (common !== null) {
    const [factor = 0] = readScales(common.tensor);
    if (factor === 0) throw new TensorFault(`has the scale 0 in ${common.tensor.name}; scales are other numbers`);
    for (let index = 0; index < scales.length; index++) {
      scales[index] = common.isDivisor ? scales[index]! / factor : scales[index]! * factor;
    }
  }
  const values = new Float32Array(numRows * numColumns);
  for (let index = 0; index < values.length; index++) {
    const byte = codes[index >> 1]!;
    const code = (index & 1) === 0 ? byte & 15 : byte >> 4;
    values[index] = e2m1Values[code]! * scales[Math.floor(index / blockSize)]!;
  }
  return values;
}
