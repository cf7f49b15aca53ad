/** Thread entry: converts a few rows of a tensor at a time and writes them to their planned place. */
import { closeSync, openSync, writeSync } from "node:fs";

import { invariant } from "../contract/errors.ts";
import { addLowRank } from "./adapters/add-low-rank.ts";
import {
  isFloat,
  LARGEST_FLOAT16,
  toBfloat16,
  toFloat16,
  toFloat32,
  type FloatElementType,
} from "./float-conversion.ts";
import type { WeightFormat } from "./prepared-weights.ts";
import { dequantizeRows } from "./quantised/dequantize-rows.ts";
import { packBlocks, readGroupedRows } from "./quantised/grouped-rows.ts";
import { quantizeBlockwise, quantizePerChannel } from "./quantize.ts";
import { readColumns, readFilePart, TensorFault, toRows } from "./read-file-part.ts";
import { bytesPerElement } from "./safetensors.ts";
import type { StoredTensor } from "./stored-tensor.ts";

/** Rows `firstRow` to `firstRow + numRows` of a source seen as a matrix, and the destination of the result. */
export interface ConversionTask {
  readonly source: StoredTensor;
  readonly firstRow: number;
  readonly numRows: number;
  readonly columns: number;
  readonly format: WeightFormat;
  readonly targetFile: string;
  /** Byte offset of the whole weight, and the row that `firstRow` becomes after concatenation. */
  readonly weightOffset: number;
  readonly scalesOffset: number;
  /** Null for a format without zero points. */
  readonly zeroPointsOffset: number | null;
  readonly targetRow: number;
  /** The row that each of the rows becomes, if they are not successive; null if they are. */
  readonly targetRows: Int32Array | null;
  readonly totalRows: number;
}

/** The error of the tensor, for a message that starts with its name; null if everything was written. */
export type ConversionFault = string | null;

export function convertRows(task: ConversionTask): ConversionFault {
  const target = openSync(task.targetFile, "r+");
  try {
    const { format } = task;
    return format.kind === "stored-blocks" || format.kind === "stored-channels"
      ? writeStored(target, task, format)
      : writeConverted(target, task, readFloats(task), format);
  } catch (error) {
    if (error instanceof TensorFault) return error.message;
    throw error;
  } finally {
    closeSync(target);
  }
}

/** @throws TensorFault for a tensor that ends early, and for values that its format does not allow. */
function readFloats(task: ConversionTask): Float32Array<ArrayBuffer> {
  const values = readStoredFloats(task);
  const { update } = task.source;
  if (update === undefined) return values;
  addLowRank(values, update, task.columns, task);
  return values;
}

function readStoredFloats({ source, firstRow, numRows, columns }: ConversionTask): Float32Array<ArrayBuffer> {
  if (source.quantised !== undefined) return dequantizeRows(source.quantised, columns, { firstRow, numRows });
  if (!isFloat(source.elementType)) throw new TensorFault(`is stored as ${source.elementType}`);
  if (source.columnStride !== undefined) {
    return toRows(toFloat32(readColumns(source, columns, { firstRow, numRows }), source.elementType), columns);
  }
  const rowBytes = columns * bytesPerElement[source.elementType];
  const bytes = readFilePart(source.file, source.byteOffset + firstRow * rowBytes, numRows * rowBytes);
  return toFloat32(bytes, source.elementType);
}

type StoredFormat = Extract<WeightFormat, { kind: "stored-blocks" | "stored-channels" }>;

/** The checkpoint's own codes in the layout of a kernel. */
function writeStored(
  target: number,
  { source, firstRow, numRows, columns, weightOffset, scalesOffset, zeroPointsOffset, ...task }: ConversionTask,
  format: StoredFormat,
): ConversionFault {
  const { targetRow, targetRows, totalRows } = task;
  const { quantised: matrix } = source;
  invariant(matrix?.kind === "grouped", `${source.name} has integers in groups`);
  const rows = readGroupedRows(matrix, columns, { firstRow, numRows });
  if (hasNonFinite(rows.scales)) return "has a scale that is not finite";
  if (format.kind === "stored-channels") {
    const weight = new Int8Array(rows.codes.length);
    for (let row = 0; row < numRows; row++) {
      for (let column = 0; column < columns; column++) {
        weight[column * numRows + row] = rows.codes[row * columns + column]! - INT8_ZERO_POINT;
      }
    }
    writeTransposed(target, { weightOffset, targetRow, totalRows, numRows, columns }, weight);
    writeBytes(target, scalesOffset + targetRow * rows.scales.BYTES_PER_ELEMENT, rows.scales);
    return null;
  }
  const { weight, scales, zeroPoints } = packBlocks(rows, matrix, format.blockSize);
  const place = { firstRow: targetRow, rows: targetRows, numRows };
  writeRows(target, weightOffset, place, weight);
  writeRows(target, scalesOffset, place, scales);
  if (zeroPointsOffset !== null) writeRows(target, zeroPointsOffset, place, zeroPoints);
  return null;
}

/** Writes rows of equal size, of a tensor at `offset`: from `firstRow` on, or each where `rows` says. */
function writeRows(
  target: number,
  offset: number,
  {
    firstRow,
    rows,
    numRows,
  }: { readonly firstRow: number; readonly rows: Int32Array | null; readonly numRows: number },
  values: Uint8Array<ArrayBuffer> | ConvertedFloats,
): void {
  const rowBytes = values.byteLength / numRows;
  if (rows === null) return writeBytes(target, offset + firstRow * rowBytes, values);
  const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  for (let row = 0; row < numRows; row++) {
    writeBytes(target, offset + rows[row]! * rowBytes, bytes.subarray(row * rowBytes, (row + 1) * rowBytes));
  }
}

/** Codes of 8 bits are from 0 to 255 in groups, and from -128 to 127 in channels. */
const INT8_ZERO_POINT = 128;

type ConvertedFloats = Float32Array<ArrayBuffer> | Float16Array<ArrayBuffer> | Uint16Array<ArrayBuffer>;

function writeConverted(
  target: number,
  { numRows, columns, weightOffset, scalesOffset, targetRow, targetRows, totalRows }: ConversionTask,
  values: Float32Array<ArrayBuffer>,
  format: Exclude<WeightFormat, StoredFormat>,
): ConversionFault {
  switch (format.kind) {
    case "plain": {
      if (format.elementType === "float16" && hasValueBeyondFloat16(values)) {
        return `has a value beyond ${LARGEST_FLOAT16}, the largest of float16`;
      }
      const converted = convertFloats(values, format.elementType);
      writeRows(target, weightOffset, { firstRow: targetRow, rows: targetRows, numRows }, converted);
      return null;
    }
    case "blockwise": {
      if (hasNonFinite(values)) return "has a value that is not finite, which cannot be quantised";
      const { weight, scales } = quantizeBlockwise(values, numRows, columns, format);
      writeBytes(target, weightOffset + (targetRow * weight.byteLength) / numRows, weight);
      writeBytes(target, scalesOffset + (targetRow * scales.byteLength) / numRows, scales);
      return null;
    }
    case "per-channel-int8": {
      if (hasNonFinite(values)) return "has a value that is not finite, which cannot be quantised";
      const { weight, scales } = quantizePerChannel(values, numRows, columns);
      writeTransposed(target, { weightOffset, targetRow, totalRows, numRows, columns }, weight);
      writeBytes(target, scalesOffset + targetRow * scales.BYTES_PER_ELEMENT, scales);
      return null;
    }
    default:
      return format satisfies never;
  }
}

/** Rows have become columns: each column of the source is a part of one row in [columns, totalRows]. */
function writeTransposed(
  target: number,
  {
    weightOffset,
    targetRow,
    totalRows,
    numRows,
    columns,
  }: Pick<ConversionTask, "weightOffset" | "targetRow" | "totalRows" | "numRows" | "columns">,
  weight: Uint8Array | Int8Array,
): void {
  for (let column = 0; column < columns; column++) {
    const strip = weight.subarray(column * numRows, (column + 1) * numRows);
    writeBytes(target, weightOffset + column * totalRows + targetRow, strip);
  }
}

function writeBytes(target: number, position: number, view: NodeJS.ArrayBufferView): void {
  let numWritten = 0;
  while (numWritten < view.byteLength) {
    numWritten += writeSync(target, view, numWritten, view.byteLength - numWritten, position + numWritten);
  }
}

function hasNonFinite(values: Float32Array): boolean {
  for (let index = 0; index < values.length; index++) {
    if (!Number.isFinite(values[index])) return true;
  }
  return false;
}

/** Infinities and NaN of the source are kept: float16 can represent them. */
function hasValueBeyondFloat16(values: Float32Array): boolean {
  for (let index = 0; index < values.length; index++) {
    const magnitude = Math.abs(values[index]!);
    // Up to 65519.99 rounds to 65504.
    if (magnitude >= 65520 && magnitude !== Infinity) return true;
  }
  return false;
}

function convertFloats(values: Float32Array<ArrayBuffer>, elementType: FloatElementType): ConvertedFloats {
  switch (elementType) {
    case "float32":
      return values;
    case "float16":
      return toFloat16(values);
    case "bfloat16":
      return toBfloat16(values);
  }
  return elementType satisfies never;
}
