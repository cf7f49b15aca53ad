/** Reads the scales of quantised matrices. */
import { isFloat, toFloat32 } from "../float-conversion.ts";
import { readFilePart, TensorFault, toRows } from "../read-file-part.ts";
import { bytesPerElement } from "../safetensors.ts";
import type { StoredTensor } from "../stored-tensor.ts";
import { e4m3Values, e8m0Values } from "./small-floats.ts";

/** @throws TensorFault for a scale that is not finite. */
export function readScales(tensor: StoredTensor): Float32Array {
  const values = toScales(tensor, readFilePart(tensor.file, tensor.byteOffset, tensor.byteLength));
  return tensor.columnStride === undefined ? values : toRows(values, tensor.shape[1]!);
}

/** The scales of some rows of a tensor [rows, columns]. @throws TensorFault for a scale that is not finite. */
export function readScaleRows(
  tensor: StoredTensor,
  { firstRow, numRows }: { readonly firstRow: number; readonly numRows: number },
): Float32Array {
  const rowBytes = tensor.shape[1]! * bytesPerElement[tensor.elementType];
  return toScales(tensor, readFilePart(tensor.file, tensor.byteOffset + firstRow * rowBytes, numRows * rowBytes));
}

/** A scale that is not finite would make all of its weights so, and each answer nonsense. */
export function requireFinite({ name }: StoredTensor, scales: Float32Array<ArrayBuffer>): Float32Array<ArrayBuffer> {
  const wrong = scales.find((scale) => !Number.isFinite(scale));
  if (wrong === undefined) return scales;
  throw new TensorFault(`has the scale ${wrong} in ${name}; scales are finite`);
}

function toScales(tensor: StoredTensor, bytes: Uint8Array<ArrayBuffer>): Float32Array<ArrayBuffer> {
  const { elementType, name } = tensor;
  if (isFloat(elementType)) return requireFinite(tensor, toFloat32(bytes, elementType));
  const values = smallFloats[elementType];
  if (values === undefined) throw new TensorFault(`has scales of ${elementType} in ${name}`);
  return requireFinite(
    tensor,
    Float32Array.from(bytes, (code) => values[code]!),
  );
}

/** compressed-tensors and ModelOpt store the exponents of powers of two as plain bytes. */
const smallFloats: Readonly<Partial<Record<StoredTensor["elementType"], Float32Array>>> = {
  float8e4m3: e4m3Values,
  float8e8m0: e8m0Values,
  uint8: e8m0Values,
};
