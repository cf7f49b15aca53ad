/** The form in which kernels compute with integers that a checkpoint stores. */
import type { DeviceName } from "../contract/config.ts";
import type { WeightFormat } from "../weights/prepared-weights.ts";
import type { GroupedMatrix } from "../weights/stored-tensor.ts";
import type { GraphContext, Precision } from "./graph-context.ts";

export interface LinearForm {
  readonly format: WeightFormat;
  /** The input feature at each position of the weight; null if they are in order. */
  readonly inputOrder: Int32Array | null;
}

/**
 * Largest block of `MatMulNBits`: a group of more weights becomes several blocks with the same scale. On cuda, the fused
 * kernels take blocks of 32.
 */
const largestBlock: Readonly<Record<DeviceName, number>> = { cpu: 128, cuda: 32, webgpu: 32 };

/** The form of a layer: the checkpoint's integers if they are kept, otherwise a format in which they become floats first. */
export function linearForm(
  { weights, precision, device }: Pick<GraphContext, "weights" | "precision" | "device">,
  name: string,
  format: WeightFormat,
): LinearForm {
  const matrix = precision.keepsIntegers === true ? weights.quantised(`${name}.weight`) : null;
  if (matrix === null || matrix.kind !== "grouped") return { format, inputOrder: null };
  if (matrix.quantisesActivations && device === "cpu") return { format: { kind: "stored-channels" }, inputOrder: null };
  if (precision.blocks !== undefined) return { format: precision.blocks, inputOrder: null };
  return { format: storedBlocks(matrix, device), inputOrder: matrix.columnOrder };
}

/** Whether the weight stands beside another form of itself, with which other runs are computed. */
export function isForPrompts({ prompts }: Precision, format: WeightFormat): boolean {
  return prompts !== undefined && (format === prompts.linear || format === prompts.blocks);
}

function storedBlocks({ bits, groupSize, zeroPoints }: GroupedMatrix, device: DeviceName): WeightFormat {
  let blockSize = largestBlock[device];
  while (groupSize % blockSize !== 0 && blockSize > SMALLEST_BLOCK) blockSize /= 2;
  return { kind: "stored-blocks", bits, blockSize, hasZeroPoints: zeroPoints !== null };
}

/** Of `MatMulNBits`. Groups are multiples of it, or whole rows, whose last block may be incomplete. */
const SMALLEST_BLOCK = 16;

export function sameForm(left: LinearForm, right: LinearForm): boolean {
  return JSON.stringify(left.format) === JSON.stringify(right.format) && sameOrder(left.inputOrder, right.inputOrder);
}

export function sameOrder(left: Int32Array | null, right: Int32Array | null): boolean {
  if (left === null || right === null) return left === right;
  return left.length === right.length && left.every((input, position) => input === right[position]);
}
