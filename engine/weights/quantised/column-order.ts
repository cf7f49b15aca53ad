/** Act-order (`desc_act`): inputs whose groups are not successive. */
import { open } from "node:fs/promises";

import type { StoredTensor } from "../stored-tensor.ts";
import { invalidCheckpoint } from "./quantisation.ts";

/**
 * The input of each position once inputs are sorted by their group; null if they are sorted already.
 *
 * @param tensor int32 [inputs], the group of each input.
 * @throws EngineError `invalid_checkpoint` if a group does not have `groupSize` inputs.
 */
export async function readColumnOrder(tensor: StoredTensor, groupSize: number): Promise<Int32Array | null> {
  const groups = new Int32Array((await readTensor(tensor)).buffer);
  const numGroups = groups.length / groupSize;
  const counts = new Int32Array(numGroups);
  let isSorted = true;
  for (let input = 0; input < groups.length; input++) {
    const group = groups[input]!;
    if (group < 0 || group >= numGroups) {
      throw invalidCheckpoint(
        `Tensor ${tensor.name} puts input ${input} into group ${group}; there are ${numGroups} groups.`,
      );
    }
    counts[group]! += 1;
    isSorted &&= input === 0 || groups[input - 1]! <= group;
  }
  const uneven = counts.findIndex((count) => count !== groupSize);
  if (uneven !== -1) {
    throw invalidCheckpoint(
      `Tensor ${tensor.name} puts ${counts[uneven]} inputs into group ${uneven}; the group size is ${groupSize}.`,
    );
  }
  if (isSorted) return null;
  // Stable, so that equal groups of several layers give equal orders.
  return Int32Array.from(groups.keys()).sort((left, right) => groups[left]! - groups[right]! || left - right);
}

/** All bytes of a small tensor. */
export async function readTensor({
  name,
  file,
  byteOffset,
  byteLength,
}: StoredTensor): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(byteLength);
  await using handle = await open(file, "r");
  const { bytesRead } = await handle.read(bytes, 0, byteLength, byteOffset);
  if (bytesRead !== byteLength) throw invalidCheckpoint(`Tensor ${name} could not be read to its end.`);
  return bytes;
}
