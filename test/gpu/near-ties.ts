/** Whether greedy tokens are those of a recording, up to choices between tokens that are about as likely. */
import type { SampledLogprobs } from "../../engine/contract/request-output.ts";
import type { GoldenCase } from "../support/checkpoints/goldens.ts";
import type { HubCase } from "../support/checkpoints/hub-checkpoints.ts";

export interface Comparison {
  readonly isEqual: boolean;
  /** Tokens before the first that differs. */
  readonly numEqual: number;
  /**
   * `compareTokens`: by how much the recorded logit of the recorded token is above that of the token chosen, as a share
   * of the row's range. `compareLogprobs`: the largest difference of logprobs.
   */
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

/**
 * The same where only logprobs of the tokens are recorded. At the first different token, the row of the answer shows how
 * likely the recorded one was; it must be among the tokens that the row names.
 */
export function compareLogprobs(
  actual: readonly number[],
  logprobs: readonly SampledLogprobs[],
  { greedyTokenIds, logprobs: recorded }: Pick<HubCase, "greedyTokenIds" | "logprobs">,
): Comparison {
  const firstDifferent = greedyTokenIds.findIndex((token, index) => actual[index] !== token);
  const isEqual = firstDifferent === -1;
  const numEqual = isEqual ? greedyTokenIds.length : firstDifferent;
  const differences = recorded
    .slice(0, isEqual ? numEqual : numEqual + 1)
    .map((expected, index) => Math.abs(expected - logprobOf(logprobs[index], greedyTokenIds[index]!)));
  const tie = isEqual ? 0 : logprobs[numEqual]?.sampled.logprob;
  const behind = isEqual ? 0 : (tie ?? Infinity) - logprobOf(logprobs[numEqual], greedyTokenIds[numEqual]!);
  const largest = Math.max(behind, ...differences);
  return { isEqual, numEqual, gap: Number.isNaN(largest) ? Infinity : largest };
}

/** Minus infinity where the row does not name the token. */
function logprobOf(row: SampledLogprobs | undefined, tokenId: number): number {
  const named = row && [row.sampled, ...row.top].find((entry) => entry.tokenId === tokenId);
  return named?.logprob ?? -Infinity;
}
