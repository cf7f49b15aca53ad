/** Positions on three axes, for decoders that take them as an input. */
import type { Sequence } from "../scheduler/sequence.ts";

/** Row-major [3, endToken - firstToken]. */
export function spanPositions(sequence: Sequence, firstToken: number, endToken: number): BigInt64Array {
  const positions = new BigInt64Array(3 * (endToken - firstToken));
  writePositions(sequence, firstToken, endToken, positions, 0);
  return positions;
}

/** Writes the positions of the tokens into columns of `positions`, row-major [3, numColumns], from `firstColumn` on. */
export function writePositions(
  sequence: Sequence,
  firstToken: number,
  endToken: number,
  positions: BigInt64Array,
  firstColumn: number,
): void {
  const { positions: prompt, numPromptTokens } = sequence;
  const numColumns = positions.length / 3;
  for (let axis = 0; axis < 3; axis++) {
    for (let place = firstToken; place < endToken; place++) {
      const isPrompt = prompt !== null && place < numPromptTokens;
      const position = isPrompt
        ? BigInt(prompt.axes[axis * numPromptTokens + place]!)
        : outputPosition(sequence, place);
      positions[axis * numColumns + firstColumn + place - firstToken] = position;
    }
  }
}

/** The position, on every axis, of the output token at an index of the whole sequence. */
export function outputPosition({ positions, numPromptTokens }: Sequence, place: number): bigint {
  return BigInt(positions === null ? place : positions.next + place - numPromptTokens);
}
