/** Positions of three axes, which some models give to the tokens of a prompt in place of the one at which they stand. */

export interface PromptPositions {
  /** Row-major [3, numPromptTokens]: temporal, height and width. */
  readonly axes: Int32Array;
  /** The position, the same in all axes, of the first token after the prompt; each later one's is one more. */
  readonly next: number;
}
