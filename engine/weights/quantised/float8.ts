/** Matrices of 8-bit floating point numbers (E4M3), with scales of blocks of any shape. */
import type { StoredTensor } from "../stored-tensor.ts";
import { exponentTypes } from "./float4.ts";
import {
  floatTypes,
  requireMatrix,
  requirePart,
  requireShape,
  type LocatedMatrix,
  type Tensors,
} from "./quantisation.ts";

type Shape = readonly [number, number];

/** @throws EngineError `invalid_checkpoint` if there is not one scale for each block. */
export function locateFloat8(
  tensors: Tensors,
  module: string,
  codes: StoredTensor,
  blockShapeOf: (shape: Shape, scales: StoredTensor) => Shape,
): LocatedMatrix {
  const shape = requireMatrix(codes);
  const scales = requirePart(tensors, `${module}.weight_scale`, codes.name, [...floatTypes, ...exponentTypes]);
  const blockShape = blockShapeOf(shape, scales);
  requireScales(scales, shape, blockShape);
  return { shape, matrix: { kind: "float8", codes, scales, blockShape } };
}

export function isBlockShape(value: unknown): value is readonly [number, number] {
  return Array.isArray(value) && value.length === 2 && value.every((size) => Number.isSafeInteger(size) && size > 0);
}

/** @throws EngineError `invalid_checkpoint` if there is not one scale for each block. */
export function requireScales(
  scales: StoredTensor,
  [outFeatures, inFeatures]: readonly [number, number],
  [rows, columns]: readonly [number, number],
): void {
  const expected = [Math.ceil(outFeatures / rows), Math.ceil(inFeatures / columns)];
  const isFlat = scales.shape.filter((size) => size !== 1).every((size) => size === expected[0]! * expected[1]!);
  const numScales = scales.shape.reduce((product, size) => product * size, 1);
  if (isFlat && numScales === expected[0]! * expected[1]! && (expected[0] === 1 || expected[1] === 1)) return;
  requireShape(scales, expected, `${outFeatures} outputs, ${inFeatures} inputs and blocks of ${rows} x ${columns}`);
}
