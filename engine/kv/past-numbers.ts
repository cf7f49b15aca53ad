/** Memory of the keys, values and states that exports read and write. */
import type { ExportedState, KvElementType } from "../models/built-model.ts";
import { numElements } from "../runtime/element-type.ts";

export type PastNumbers = Float32Array | Float16Array;

/** Zeros; only touched pages take memory. */
export function createPastNumbers(elementType: KvElementType, length: number): PastNumbers {
  return elementType === "float32" ? new Float32Array(length) : new Float16Array(length);
}

/** Bytes of the states of one sequence. */
export function exportedStateBytes(states: readonly ExportedState[]): number {
  return states.reduce((sum, { shape, elementType }) => {
    const { BYTES_PER_ELEMENT } = elementType === "float32" ? Float32Array : Float16Array;
    return sum + numElements(shape) * BYTES_PER_ELEMENT;
  }, 0);
}
