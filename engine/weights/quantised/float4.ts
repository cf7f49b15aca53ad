/** Matrices of 4-bit floating point numbers: NVFP4 and MXFP4. */
import type { StoredTensor } from "../stored-tensor.ts";
import {
  invalidCheckpoint,
  requireMatrix,
  requirePart,
  requireShape,
  requireType,
  type LocatedMatrix,
  type Tensors,
} from "./quantisation.ts";

/** Types of scales that are powers of two. */
export const exponentTypes = ["uint8", "float8e8m0"] as const;

export interface Float4Options {
  readonly blockSize: number;
  /** Last part of the name of the scale of all scales, which NVFP4 has, and whether scales are divided by it. */
  readonly common: { readonly suffix: string; readonly isDivisor: boolean } | null;
}

/** @throws EngineError `invalid_checkpoint` for a tensor that is missing, or of another type or shape. */
export function locateFloat4(
  tensors: Tensors,
  module: string,
  codes: StoredTensor,
  { blockSize, common }: Float4Options,
): LocatedMatrix {
  requireType(codes, ["uint8"]);
  const [outFeatures, numBytes] = requireMatrix(codes);
  const inFeatures = 2 * numBytes;
  if (inFeatures % blockSize !== 0) {
    throw invalidCheckpoint(`${codes.name} has ${inFeatures} inputs, which is not a multiple of ${blockSize}.`);
  }
  const scaleTypes = common === null ? exponentTypes : (["float8e4m3"] as const);
  const scales = requirePart(tensors, `${module}.weight_scale`, codes.name, scaleTypes);
  const reason = `${codes.name} [${outFeatures}, ${numBytes}] and blocks of ${blockSize}`;
  requireShape(scales, [outFeatures, inFeatures / blockSize], reason);
  return {
    shape: [outFeatures, inFeatures],
    matrix: {
      kind: "float4",
      codes,
      scales,
      blockSize,
      common: common && {
        tensor: commonScale(tensors, `${module}.${common.suffix}`, codes.name),
        isDivisor: common.isDivisor,
      },
    },
  };
}

function commonScale(tensors: Tensors, name: string, besides: string): StoredTensor {
  const tensor = requirePart(tensors, name, besides, ["float32"]);
  if (tensor.byteLength === Float32Array.BYTES_PER_ELEMENT) return tensor;
  throw invalidCheckpoint(`Tensor ${name} has shape [${tensor.shape.join(", ")}]; expected one number.`);
}
