/** Reads rows of a quantised matrix as float32. */
import { isFloat, toFloat32 } from "../float-conversion.ts";
import { readColumns, readFilePart, TensorFault, toRows } from "../read-file-part.ts";
import type { CodebookMatrix, Float8Matrix, Int8RowsMatrix, QuantisedMatrix, StoredTensor } from "../stored-tensor.ts";
import { dequantizeGroups, readGroupedRows, type RowRange } from "./grouped-rows.ts";

/**
 * Float32 [numRows, numColumns]; products are rounded once, to float32, and not to the checkpoint's 16-bit type.
 *
 * @throws TensorFault for content that the format does not allow.
 */
export function dequantizeRows(
  matrix: QuantisedMatrix,
  numColumns: number,
  range: RowRange,
): Float32Array<ArrayBuffer> {
  switch (matrix.kind) {
    case "grouped":
      return dequantizeGroups(readGroupedRows(matrix, numColumns, range), matrix);
    case "float8":
      return dequantizeFloat8(matrix, numColumns, range);
    case "int8-rows":
      return dequantizeInt8Rows(matrix, numColumns, range);
    case "codebook":
      return dequantizeCodebook(matrix, numColumns, range);
  }
  return matrix satisfies never;
}

/** E4M3FN: a sign, four bits of exponent (bias 7), three of mantissa; no infinities, and NaN where all seven are set. */
const float8Values = Float32Array.from({ length: 256 }, (_, code) => {
  const exponent = (code >> 3) & 15;
  const mantissa = code & 7;
  const magnitude = exponent === 0 ? mantissa * 2 ** -9 : (8 + mantissa) * 2 ** (exponent - 10);
  return (code & 0x7f) === 0x7f ? NaN : code < 128 ? magnitude : -magnitude;
});

function dequantizeFloat8(
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
  const scales = readAll(scaleTensor);
  const blocksPerRow = Math.ceil(numColumns / blockColumns);
  const values = new Float32Array(codes.length);
  for (let row = 0; row < numRows; row++) {
    const firstScale = Math.floor((firstInBlocks + firstRow + row) / blockRows) * blocksPerRow;
    for (let column = 0; column < numColumns; column++) {
      const index = row * numColumns + column;
      const value = float8Values[codes[index]!]!;
      if (Number.isNaN(value)) throw new TensorFault("has a value that is not a number");
      values[index] = value * scales[firstScale + Math.floor(column / blockColumns)]!;
    }
  }
  return values;
}

const ONE_127TH = Math.fround(1 / 127);

function dequantizeInt8Rows(
  { codes: tensor, scales: scaleTensor }: Int8RowsMatrix,
  numColumns: number,
  { firstRow, numRows }: RowRange,
): Float32Array<ArrayBuffer> {
  const bytes = readFilePart(tensor.file, tensor.byteOffset + firstRow * numColumns, numRows * numColumns);
  const codes = new Int8Array(bytes.buffer);
  const scales = readAll(scaleTensor);
  const values = new Float32Array(codes.length);
  for (let row = 0; row < numRows; row++) {
    const scale = scales[firstRow + row]!;
    for (let index = row * numColumns; index < (row + 1) * numColumns; index++) {
      // In the order of bitsandbytes' `int8_vectorwise_dequant`.
      values[index] = Math.fround(codes[index]! * scale) * ONE_127TH;
    }
  }
  return values;
}

function dequantizeCodebook(
  { codes: tensor, codebook: codebookTensor, blockSize, scales: scaleTensor, nested }: CodebookMatrix,
  numColumns: number,
  { firstRow, numRows }: RowRange,
): Float32Array<ArrayBuffer> {
  const first = firstRow * numColumns;
  const last = first + numRows * numColumns;
  const firstByte = Math.floor(first / 2);
  const codes = readFilePart(tensor.file, tensor.byteOffset + firstByte, Math.ceil(last / 2) - firstByte);
  const codebook = readAll(codebookTensor);
  const firstBlock = Math.floor(first / blockSize);
  const numBlocks = Math.ceil(last / blockSize) - firstBlock;
  const elementBytes = nested === null ? 4 : 1;
  const position = scaleTensor.byteOffset + firstBlock * elementBytes;
  const bytes = readFilePart(scaleTensor.file, position, numBlocks * elementBytes);
  const scales =
    nested === null
      ? requireFinite(scaleTensor, new Float32Array(bytes.buffer))
      : nestedScales(bytes, firstBlock, nested);
  const values = new Float32Array(last - first);
  for (let index = first; index < last; index++) {
    const byte = codes[(index >> 1) - firstByte]!;
    const code = (index & 1) === 0 ? byte >> 4 : byte & 15;
    values[index - first] = codebook[code]! * scales[Math.floor(index / blockSize) - firstBlock]!;
  }
  return values;
}

function nestedScales(
  codes: Uint8Array,
  firstBlock: number,
  { codebook: codebookTensor, blockSize, scales: scaleTensor, offset }: NonNullable<CodebookMatrix["nested"]>,
): Float32Array {
  const codebook = readAll(codebookTensor);
  const scales = readAll(scaleTensor);
  return Float32Array.from(codes, (code, index) => {
    const product = Math.fround(codebook[code]! * scales[Math.floor((firstBlock + index) / blockSize)]!);
    return product + Math.fround(offset);
  });
}

function readAll(tensor: StoredTensor): Float32Array {
  if (!isFloat(tensor.elementType)) throw new TensorFault(`has scales of ${tensor.elementType} in ${tensor.name}`);
  const values = toFloat32(readFilePart(tensor.file, tensor.byteOffset, tensor.byteLength), tensor.elementType);
  return requireFinite(tensor, tensor.columnStride === undefined ? values : toRows(values, tensor.shape[1]!));
}

/** A scale that is not finite would make all of its weights so, and each answer nonsense. */
function requireFinite({ name }: StoredTensor, scales: Float32Array): Float32Array {
  const wrong = scales.find((scale) => !Number.isFinite(scale));
  if (wrong === undefined) return scales;
  throw new TensorFault(`has the scale ${wrong} in ${name}; scales are finite`);
}
