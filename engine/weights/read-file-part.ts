/** Reads parts of tensors from files, for threads that convert weights. */
import { closeSync, openSync, readSync } from "node:fs";

import { bytesPerElement } from "./safetensors.ts";
import type { StoredTensor } from "./stored-tensor.ts";

/** The error of a tensor's content, for a message that starts with the tensor's name. */
export class TensorFault extends Error {}

/** The bytes start at the beginning of their ArrayBuffer, so that they can be viewed as any type. */
export function readFilePart(file: string, position: number, length: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(length);
  const source = openSync(file, "r");
  try {
    readInto(source, bytes, position);
    return bytes;
  } finally {
    closeSync(source);
  }
}

/**
 * A part of each row of a matrix, one after the other.
 *
 * @param rowBytes Bytes of a whole row.
 * @param strip Bytes of each row that are read: `offset` from its start, `length` of them.
 */
export function readStrip(
  { file, byteOffset, byteLength }: Pick<StoredTensor, "file" | "byteOffset" | "byteLength">,
  rowBytes: number,
  { offset, length }: { readonly offset: number; readonly length: number },
): Uint8Array<ArrayBuffer> {
  if (length === rowBytes) return readFilePart(file, byteOffset, byteLength);
  const numRows = byteLength / rowBytes;
  const bytes = new Uint8Array(numRows * length);
  const source = openSync(file, "r");
  try {
    for (let row = 0; row < numRows; row++) {
      readInto(source, bytes.subarray(row * length, (row + 1) * length), byteOffset + row * rowBytes + offset);
    }
    return bytes;
  } finally {
    closeSync(source);
  }
}

/**
 * Some rows of a matrix with a `columnStride`, as the file has them: their elements of the first column, then of the
 * next.
 */
export function readColumns(
  { file, byteOffset, elementType, columnStride }: StoredTensor,
  numColumns: number,
  { firstRow, numRows }: { readonly firstRow: number; readonly numRows: number },
): Uint8Array<ArrayBuffer> {
  const bytes = bytesPerElement[elementType];
  const columnBytes = columnStride! * bytes;
  const strip = { offset: 0, length: numRows * bytes };
  const first = byteOffset + firstRow * bytes;
  return readStrip({ file, byteOffset: first, byteLength: numColumns * columnBytes }, columnBytes, strip);
}

/** Row by row what `byColumn` has column by column. */
export function toRows<Values extends Float32Array<ArrayBuffer> | Uint8Array<ArrayBuffer>>(
  byColumn: Values,
  numColumns: number,
): Values {
  const values = byColumn.slice() as Values;
  const numRows = byColumn.length / numColumns;
  for (let column = 0; column < numColumns; column++) {
    for (let row = 0; row < numRows; row++) values[row * numColumns + column] = byColumn[column * numRows + row]!;
  }
  return values;
}

function readInto(source: number, bytes: Uint8Array<ArrayBuffer>, position: number): void {
  let numRead = 0;
  while (numRead < bytes.byteLength) {
    const count = readSync(source, bytes, numRead, bytes.byteLength - numRead, position + numRead);
    if (count === 0) throw new TensorFault("could not be read to its end");
    numRead += count;
  }
}
