/** Reads weights of a test's checkpoint as they are in its file, and multiplies with them. */
import { readFile } from "node:fs/promises";

export interface TensorEntry {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly data_offsets: readonly [number, number];
}

/** `start`: where the tensors begin in the file. */
export async function readSafetensors(path: string) {
  const file = await readFile(path);
  const start = 8 + Number(file.readBigUInt64LE());
  return { file, start, header: JSON.parse(file.toString("utf8", 8, start)) as Record<string, TensorEntry> };
}

/** The rows of a matrix of bfloat16. */
export async function readRows(path: string, name: string): Promise<Float32Array[]> {
  const { file, start, header } = await readSafetensors(path);
  const { shape, data_offsets: offsets } = header[name]!;
  const [numRows = 0, width = 0] = shape;
  const bits = new Uint32Array(numRows * width);
  for (let index = 0; index < bits.length; index++) {
    bits[index] = file.readUInt16LE(start + offsets[0] + 2 * index) << 16;
  }
  const values = new Float32Array(bits.buffer);
  return Array.from({ length: numRows }, (_, row) => values.subarray(row * width, (row + 1) * width));
}

export function dot(left: Float32Array, right: Float32Array): number {
  return left.reduce((sum, value, index) => sum + value * right[index]!, 0);
}
