/** Reads rows of a quantised matrix as float32. */
import { readFilePart } from "../read-file-part.ts";
import type { CodebookMatrix, Int8RowsMatrix, QuantisedMatrix } from "../stored-tensor.ts";
import { dequantizeFloat4, dequantizeFloat8 } from "./dequantize-floats.ts";
import { dequantizeGroups, readGroupedRows, type RowRange } from "./grouped-rows.ts";
import { readScales, requireFinite } from "./scales.ts";

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
    case "float4":
      return dequantizeFloat4(matrix, numColumns, range);
    case "int8-rows":
      return dequantizeInt8Rows(matrix, numColumns, range);
    case "codebook":
      return dequantizeCodebook(matrix, numColumns, range);
  }
  return matrix satisfies never;
}

const ONE_127TH = Math.fround(1 / 127);

function dequantizeInt8Rows(
  { codes: tensor, scales: scaleTensor }: Int8RowsMatrix,
  numColumns: number,
  { firstRow, numRows }: RowRange,
): Float32Array<ArrayBuffer> {
  const bytes = readFilePart(tensor.file, tensor.byteOffset + firstRow * numColumns, numRows * numColumns);
  const codes = new Int8Array(bytes.buffer);
  const scales = readScales(scaleTensor);
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
  const codebook = readScales(codebookTensor);
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
  const codebook = readScales(codebookTensor);
  const scales = readScales(scaleTensor);
  return Float32Array.from(codes, (code, index) => {
    const product = Math.fround(codebook[code]! * scales[Math.floor((firstBlock + index) / blockSize)]!);
    return product + Math.fround(offset);
  });
}
