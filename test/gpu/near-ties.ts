/** Whether greedy tokens are those of a recording, up to choices between tokens that are about as likely. */
import type { GoldenCase } from "../support/checkpoints/goldens.ts";

export interface Comparison {
  readonly isEqual: boolean;
  /** Tokens before the first that differs. */
  readonly numEqual: number;
  /** By how much the recorded logit of the recorded token is above that of the token chosen, as a share of the range. */
  readonly gap: number;
}

/** After the first different token, the texts are different ones, and nothing more can be compared. */
export function compareTokens(actual: readonly number[], golden: GoldenCase, vocabSize: number): Comparison {
  const expected = golden.greedyTokenIds;
  const numEqual = expected.findIndex((token, index) => actual[index] !== token);
  if (numEqual === -1) return { isEqual: true, numEqual: expected.length, gap: 0 };
  if (actual[numEqual] === undefined) return { isEqual: false, numEqual, gap: Infinity };
  const row = golden.logits.subarray(numEqual * vocabSize, (numEqual + 1) * vocabSize);
  const range = row.reduce((high, value) => Math.max(high, value)) - row.reduce((low, value) => Math.min(low, value));
  return { isEqual: false, numEqual, gap: (row[expected[numEqual]!]! - row[actual[numEqual]]!) / range };
}
