/** Reads parts of tensors from files, for threads that convert weights. */
import { closeSync, openSync, readSync } from "node:fs";

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

function readInto(source: number, bytes: Uint8Array<ArrayBuffer>, position: number): void {
  let numRead = 0;
  while (numRead < bytes.byteLength) {
    const count = readSync(source, bytes, numRead, bytes.byteLength - numRead, position + numRead);
    if (count === 0) throw new TensorFault("could not be read to its end");
    numRead += count;
  }
}
