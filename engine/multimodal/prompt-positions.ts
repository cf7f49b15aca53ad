/** Three-axis positions that some models give to the tokens of a prompt. */

export interface PromptPositions {
  /** Row-major [3, numPromptTokens]: temporal, height and width. */
  readonly axes: Int32Array;
  /** Position, equal in all axes, of the first token after the prompt. Each later token's is one more. */
  readonly next: number;
}
