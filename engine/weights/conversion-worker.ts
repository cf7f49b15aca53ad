/** Thread entry: converts a few rows of a tensor at a time and writes them to their planned place. */
import { closeSync, openSync, readSync, writeSync } from "node:fs";

import {
  isFloat,
  LARGEST_FLOAT16,
  toBfloat16,
  toFloat16,
  toFloat32,
  type FloatElementType,
} from "./float-conversion.ts";
import type { WeightFormat } from "./prepared-weights.ts";
import { quantizeBlockwise, quantizePerChannel } from "./quantize.ts";
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
  readonly targetRow: number;
  readonly totalRows: number;
}

/** The error of the tensor, for a message that starts with its name; null if everything was written. */
export type ConversionFault = string | null;

export function convertRows(task: ConversionTask): ConversionFault {
  const { source, firstRow, numRows, columns, format } = task;
  if (!isFloat(source.elementType)) return `is stored as ${source.elementType}`;
  const rowBytes = columns * bytesPerElement[source.elementType];
  const bytes = readBytes(source.file, source.byteOffset + firstRow * rowBytes, numRows * rowBytes);
  if (bytes === null) return "could not be read to its end";
  const values = toFloat32(bytes, source.elementType);
  const target = openSync(task.targetFile, "r+");
  try {
    return writeConverted(target, task, values, format);
  } finally {
    closeSync(target);
  }
}

type ConvertedFloats = Float32Array<ArrayBuffer> | Float16Array<ArrayBuffer> | Uint16Array<ArrayBuffer>;

function writeConverted(
  target: number,
  { numRows, columns, weightOffset, scalesOffset, targetRow, totalRows }: ConversionTask,
  values: Float32Array<ArrayBuffer>,
  format: WeightFormat,
): ConversionFault {
  switch (format.kind) {
    case "plain": {
      if (format.elementType === "float16" && hasValueBeyondFloat16(values)) {
        return `has a value beyond ${LARGEST_FLOAT16}, the largest of float16`;
      }
      const converted = convertFloats(values, format.elementType);
      writeBytes(target, weightOffset + targetRow * columns * converted.BYTES_PER_ELEMENT, converted);
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
      // Rows have become columns: each column of the source is a part of one row in [columns, totalRows].
      for (let column = 0; column < columns; column++) {
        const strip = weight.subarray(column * numRows, (column + 1) * numRows);
        writeBytes(target, weightOffset + column * totalRows + targetRow, strip);
      }
      writeBytes(target, scalesOffset + targetRow * scales.BYTES_PER_ELEMENT, scales);
      return null;
    }
    default:
      return format satisfies never;
  }
}

function readBytes(file: string, position: number, length: number): Uint8Array<ArrayBuffer> | null {
  const bytes = new Uint8Array(length);
  const source = openSync(file, "r");
  try {
    let numRead = 0;
    while (numRead < length) {
      const count = readSync(source, bytes, numRead, length - numRead, position + numRead);
      if (count === 0) return null;
      numRead += count;
    }
    return bytes;
  } finally {
    closeSync(source);
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
