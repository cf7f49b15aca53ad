/** Reads rows of a matrix that is quantised in groups, and turns them into floats or into `MatMulNBits`' blocks. */
import { isFloat, toFloat32 } from "../float-conversion.ts";
import { readFilePart, readStrip, TensorFault } from "../read-file-part.ts";
import { bytesPerElement } from "../safetensors.ts";
import type { GroupedMatrix, StoredTensor } from "../stored-tensor.ts";

export interface GroupedRows {
  readonly numRows: number;
  readonly numColumns: number;
  readonly numGroups: number;
  /** [numRows, numColumns], as stored: not in the order of groups. */
  readonly codes: Uint8Array<ArrayBuffer>;
  /** [numRows, numGroups]. */
  readonly scales: Float32Array<ArrayBuffer>;
  /** [numRows, numGroups]. */
  readonly zeroPoints: Uint8Array<ArrayBuffer>;
}

export interface RowRange {
  /** A multiple of `ROW_ALIGNMENT`. */
  readonly firstRow: number;
  readonly numRows: number;
}

/** Outputs whose codes may be in the same word; ranges of rows start at multiples of it. */
export const ROW_ALIGNMENT = 32;

/** Position of the codes of eight outputs in AWQ's words (AutoAWQ, `packing_utils.py`). */
const awqOutputs = [0, 2, 4, 6, 1, 3, 5, 7] as const;

/** @throws TensorFault for a file that ends early and for zero points that the bits cannot represent. */
export function readGroupedRows(matrix: GroupedMatrix, numColumns: number, range: RowRange): GroupedRows {
  const numGroups = numColumns / matrix.groupSize;
  return {
    numRows: range.numRows,
    numColumns,
    numGroups,
    codes: readCodes(matrix, numColumns, range),
    scales: readScales(matrix, numGroups, range),
    zeroPoints: readZeroPoints(matrix, numGroups, range),
  };
}

function readCodes(
  { packing, bits, codes: tensor }: GroupedMatrix,
  numColumns: number,
  { firstRow, numRows }: RowRange,
): Uint8Array<ArrayBuffer> {
  const perWord = 32 / bits;
  const mask = 2 ** bits - 1;
  const codes = new Uint8Array(numRows * numColumns);
  switch (packing) {
    case "gptq": {
      const words = readWords(tensor, { firstColumn: firstRow, numColumns: numRows });
      for (let wordRow = 0; wordRow < numColumns / perWord; wordRow++) {
        for (let row = 0; row < numRows; row++) {
          let word = words[wordRow * numRows + row]!;
          const start = row * numColumns + wordRow * perWord;
          for (let index = 0; index < perWord; index++, word >>>= bits) codes[start + index] = word & mask;
        }
      }
      return codes;
    }
    case "awq": {
      const numWords = numRows / perWord;
      const words = readWords(tensor, { firstColumn: firstRow / perWord, numColumns: numWords });
      for (let column = 0; column < numColumns; column++) {
        for (let wordIndex = 0; wordIndex < numWords; wordIndex++) {
          let word = words[column * numWords + wordIndex]!;
          for (const output of awqOutputs) {
            codes[(wordIndex * perWord + output) * numColumns + column] = word & mask;
            word >>>= bits;
          }
        }
      }
      return codes;
    }
    case "compressed-tensors": {
      const wordsPerRow = Math.ceil(numColumns / perWord);
      const words = new Int32Array(readRows(tensor, wordsPerRow * 4, { firstRow, numRows }).buffer);
      for (let row = 0; row < numRows; row++) {
        for (let column = 0; column < numColumns; column++) {
          const word = words[row * wordsPerRow + Math.floor(column / perWord)]!;
          codes[row * numColumns + column] = (word >>> ((column % perWord) * bits)) & mask;
        }
      }
      return codes;
    }
    case "int8": {
      const bytes = readRows(tensor, numColumns, { firstRow, numRows });
      for (let index = 0; index < codes.length; index++) codes[index] = bytes[index]! ^ 0x80;
      return codes;
    }
  }
  return packing satisfies never;
}

function readScales(
  { packing, scales: tensor }: GroupedMatrix,
  numGroups: number,
  { firstRow, numRows }: RowRange,
): Float32Array<ArrayBuffer> {
  if (tensor.byteLength === bytesPerElement[tensor.elementType]) {
    const value = readFloats(tensor, readFilePart(tensor.file, tensor.byteOffset, tensor.byteLength))[0]!;
    return new Float32Array(numRows * numGroups).fill(value);
  }
  const elementBytes = bytesPerElement[tensor.elementType];
  if (packing === "int8" || packing === "compressed-tensors") {
    return readFloats(tensor, readRows(tensor, numGroups * elementBytes, { firstRow, numRows }));
  }
  const strip = { offset: firstRow * elementBytes, length: numRows * elementBytes };
  return transposed(readFloats(tensor, readStrip(tensor, tensor.byteLength / numGroups, strip)), numGroups, numRows);
}

function readFloats(tensor: StoredTensor, bytes: Uint8Array<ArrayBuffer>): Float32Array<ArrayBuffer> {
  if (!isFloat(tensor.elementType)) throw new TensorFault(`has scales of ${tensor.elementType} in ${tensor.name}`);
  return toFloat32(bytes, tensor.elementType);
}

function readZeroPoints(
  { packing, bits, zeroPoints: tensor, hasLowZeroPoints }: GroupedMatrix,
  numGroups: number,
  { firstRow, numRows }: RowRange,
): Uint8Array<ArrayBuffer> {
  const middle = 2 ** (bits - 1);
  const zeroPoints = new Uint8Array(numRows * numGroups);
  if (tensor === null) return zeroPoints.fill(middle);
  if (tensor.elementType === "int8") {
    const isSingle = tensor.byteLength === 1;
    const stored = isSingle
      ? readFilePart(tensor.file, tensor.byteOffset, 1)
      : readRows(tensor, numGroups, { firstRow, numRows });
    const bytes = new Int8Array(stored.buffer);
    for (let index = 0; index < zeroPoints.length; index++) {
      const zeroPoint = bytes[isSingle ? 0 : index]!;
      if (zeroPoint < -middle || zeroPoint >= middle) {
        throw new TensorFault(
          `has a zero point of ${zeroPoint} in ${tensor.name}; those of ${bits} bits are from -${middle} to ${middle - 1}`,
        );
      }
      zeroPoints[index] = zeroPoint + middle;
    }
    return zeroPoints;
  }
  const perWord = 32 / bits;
  const mask = 2 ** bits - 1;
  const numWords = Math.ceil(numRows / perWord);
  if (packing === "compressed-tensors") {
    const rowRange = { firstRow: firstRow / perWord, numRows: numWords };
    const words = new Int32Array(readRows(tensor, numGroups * 4, rowRange).buffer);
    for (let row = 0; row < numRows; row++) {
      for (let group = 0; group < numGroups; group++) {
        const word = words[Math.floor(row / perWord) * numGroups + group]!;
        zeroPoints[row * numGroups + group] = (word >>> ((row % perWord) * bits)) & mask;
      }
    }
    return zeroPoints;
  }
  const words = readWords(tensor, { firstColumn: firstRow / perWord, numColumns: numWords });
  // GPTQModel (`convert_gptq_v1_to_v2_format_module`) adds a one to all codes of a word at once, carries included:
  // where a zero point is 0, its writer borrowed from the next one in the same way.
  const increment = hasLowZeroPoints ? (bits === 4 ? 0x1111_1111 : 0x0101_0101) : 0;
  for (let group = 0; group < numGroups; group++) {
    for (let wordIndex = 0; wordIndex < numWords; wordIndex++) {
      let word = (words[group * numWords + wordIndex]! + increment) | 0;
      for (let index = 0; index < perWord; index++, word >>>= bits) {
        const output = packing === "awq" ? awqOutputs[index]! : index;
        zeroPoints[(wordIndex * perWord + output) * numGroups + group] = word & mask;
      }
    }
  }
  return zeroPoints;
}

/** int32 [rows of the tensor, numColumns]. */
function readWords(
  tensor: StoredTensor,
  { firstColumn, numColumns }: { readonly firstColumn: number; readonly numColumns: number },
): Int32Array<ArrayBuffer> {
  const strip = { offset: firstColumn * 4, length: numColumns * 4 };
  return new Int32Array(readStrip(tensor, tensor.shape[1]! * 4, strip).buffer);
}

function readRows(
  { file, byteOffset }: StoredTensor,
  rowBytes: number,
  { firstRow, numRows }: RowRange,
): Uint8Array<ArrayBuffer> {
  return readFilePart(file, byteOffset + firstRow * rowBytes, numRows * rowBytes);
}

function transposed(values: Float32Array, rows: number, columns: number): Float32Array<ArrayBuffer> {
  const result = new Float32Array(values.length);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) result[column * rows + row] = values[row * columns + column]!;
  }
  return result;
}

/** Float32 [numRows, numColumns], each rounded once. */
export function dequantizeGroups(
  { numRows, numColumns, numGroups, codes, scales, zeroPoints }: GroupedRows,
  { groupSize, columnOrder }: GroupedMatrix,
): Float32Array<ArrayBuffer> {
  const values = new Float32Array(codes.length);
  for (let row = 0; row < numRows; row++) {
    for (let group = 0; group < numGroups; group++) {
      const scale = scales[row * numGroups + group]!;
      const zeroPoint = zeroPoints[row * numGroups + group]!;
      for (let position = group * groupSize; position < (group + 1) * groupSize; position++) {
        const index = row * numColumns + (columnOrder === null ? position : columnOrder[position]!);
        values[index] = (codes[index]! - zeroPoint) * scale;
      }
    }
  }
  return values;
}

export interface PackedBlocks {
  /** [numRows, blocks, blockSize * bits / 8], inputs in the order of groups. */
  readonly weight: Uint8Array<ArrayBuffer>;
  /** [numRows, blocks]. */
  readonly scales: Float32Array<ArrayBuffer>;
  /** [numRows, ceil(blocks * bits / 8)], packed like codes. */
  readonly zeroPoints: Uint8Array<ArrayBuffer>;
}

/**
 * The same codes as blocks of `MatMulNBits`, without loss: each group is a whole number of blocks, which repeat its
 * scale and its zero point. The last block of a row is padded with zeros.
 */
export function packBlocks(
  { numRows, numColumns, numGroups, codes, scales, zeroPoints }: GroupedRows,
  { bits, groupSize, columnOrder }: GroupedMatrix,
  blockSize: number,
): PackedBlocks {
  const numBlocks = Math.ceil(numColumns / blockSize);
  const blobBytes = (blockSize * bits) / 8;
  const zeroPointBytes = Math.ceil((numBlocks * bits) / 8);
  const packed = {
    weight: new Uint8Array(numRows * numBlocks * blobBytes),
    scales: new Float32Array(numRows * numBlocks),
    zeroPoints: new Uint8Array(numRows * zeroPointBytes),
  };
  for (let row = 0; row < numRows; row++) {
    for (let block = 0; block < numBlocks; block++) {
      const group = numGroups === 1 ? 0 : Math.floor((block * blockSize) / groupSize);
      const zeroPoint = zeroPoints[row * numGroups + group]!;
      packed.scales[row * numBlocks + block] = scales[row * numGroups + group]!;
      const blob = (row * numBlocks + block) * blobBytes;
      for (let index = 0; index < blockSize; index++) {
        const position = block * blockSize + index;
        const column = columnOrder === null ? position : columnOrder[position]!;
        const code = position < numColumns ? codes[row * numColumns + column]! : zeroPoint;
        if (bits === 8) packed.weight[blob + index] = code;
        else packed.weight[blob + (index >> 1)]! |= code << ((index & 1) * 4);
      }
      if (bits === 8) packed.zeroPoints[row * zeroPointBytes + block] = zeroPoint;
      else packed.zeroPoints[row * zeroPointBytes + (block >> 1)]! |= zeroPoint << ((block & 1) * 4);
    }
  }
  return packed;
}
