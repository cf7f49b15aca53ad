/** Copies processed items into their own shared memory. */
import { typedArrayOver } from "../../runtime/element-type.ts";
import { tensorBytesOf } from "../processed-item.ts";
import type { ItemTensor, ProcessedItem } from "../processed-item.ts";

/** Sufficient for every element type. */
const ALIGNMENT = 8;

/**
 * Returns the item with its tensors copied together. It then keeps nothing of its batch in memory, and messages do not
 * copy it.
 */
export function toSharedItem(item: ProcessedItem): ProcessedItem {
  const buffer = new SharedArrayBuffer(tensorBytesOf(item) + ALIGNMENT * item.tensors.size);
  const tensors = new Map<string, ItemTensor>();
  let offset = 0;
  for (const [name, { elementType, shape, data }] of item.tensors) {
    const copy = typedArrayOver(elementType, buffer, offset, data.length);
    new Uint8Array(buffer, offset, data.byteLength).set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    tensors.set(name, { elementType, shape, data: copy } as ItemTensor);
    offset += Math.ceil(data.byteLength / ALIGNMENT) * ALIGNMENT;
  }
  return { ...item, tensors };
}
