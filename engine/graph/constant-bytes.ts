/** Numbers to the little-endian bytes of an ONNX tensor. */
import { endianness } from "node:os";

import { EngineError } from "../contract/errors.ts";
import { toBfloat16 } from "../weights/float-conversion.ts";
import type { ElementType } from "../weights/stored-tensor.ts";

/** Row-major values, converted to the element type. */
export type ConstantData = readonly number[] | Float32Array | Float64Array;

const arrayTypes = {
  float32: Float32Array,
  float16: Float16Array,
  int8: Int8Array,
  uint8: Uint8Array,
  int32: Int32Array,
} as const;

export function constantBytes(
  name: string,
  elementType: ElementType,
  shape: readonly number[],
  data: ConstantData,
): Uint8Array {
  const numElements = shape.reduce((product, size) => product * size, 1);
  if (data.length !== numElements) {
    throw new EngineError(
      "internal",
      `Constant ${name} has ${data.length} values; its shape [${shape.join(", ")}] needs ${numElements}.`,
    );
  }
  if (endianness() !== "LE")
    throw new EngineError("internal", "Constants can be written only on little-endian machines.");
  if (elementType === "bfloat16") return new Uint8Array(toBfloat16(Float32Array.from(data)).buffer);
  if (elementType === "int64") return new Uint8Array(BigInt64Array.from(Array.from(data, BigInt)).buffer);
  if (!isArrayType(elementType)) throw new EngineError("internal", `Constant ${name} cannot be ${elementType}.`);
  return new Uint8Array(arrayTypes[elementType].from(data).buffer);
}

function isArrayType(elementType: ElementType): elementType is keyof typeof arrayTypes {
  return Object.hasOwn(arrayTypes, elementType);
}
