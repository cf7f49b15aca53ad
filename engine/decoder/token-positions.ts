/** Positions on three axes, for decoders that take them as an input. */
import type { Sequence } from "../scheduler/sequence.ts";

/** Row-major [3, endToken - firstToken], for prompt tokens. */
export function chunkPositions(
  { positions, numPromptTokens }: Sequence,
  firstToken: number,
  endToken: number,
): BigInt64Array {
  const length = endToken - firstToken;
  const chunk = new BigInt64Array(3 * length);
  for (let axis = 0; axis < 3; axis++) {
    for (let index = 0; index < length; index++) {
      const place = firstToken + index;
      chunk[axis * length + index] = BigInt(
        positions === null ? place : positions.axes[axis * numPromptTokens + place],
      );
    }
  }
  return chunk;
}

/** The position, on every axis, of the output token at an index of the whole sequence. */
export function outputPosition({ positions, numPromptTokens }: Sequence, place: number): bigint {
  return BigInt(positions === null ? place : positions.next + place - numPromptTokens);
}
