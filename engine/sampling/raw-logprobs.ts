/** Logprobs of the model's own logits, copied before any processor or temperature changes a row. */
import { LEAST_LOGPROB } from "../contract/request-output.ts";
import type { SampledLogprobs, TokenLogprob } from "../contract/request-output.ts";
import { largestIndices, logSumExp, rankOf } from "./row-operations.ts";

/** Mutable: the copied rows of one step. Their memory is reused in every step. */
export class RawLogprobs {
  readonly #copies: Float32Array[] = [];

  /**
   * Copies a row for `read`.
   *
   * @param index Its number among the captured rows of the step, from 0.
   */
  capture(index: number, row: Float32Array): void {
    const copy = (this.#copies[index] ??= new Float32Array(row.length));
    copy.set(row);
  }

  /** Like `logprobsOf`, for a captured row. */
  read(captured: number, tokenId: number, numTop: number): SampledLogprobs {
    return logprobsOf(this.#copies[captured]!, tokenId, numTop);
  }
}

/** The token's logprob, and the `numTop` largest of a row of raw logits, largest first. */
export function logprobsOf(row: Float32Array, tokenId: number, numTop: number): SampledLogprobs {
  const normaliser = logSumExp(row);
  const top = largestIndices(row, numTop);
  const ranks = new Map<number, number>();
  const describe = (id: number): TokenLogprob => {
    const value = row[id]!;
    const rank = ranks.get(value) ?? rankAmong(row, top, value);
    ranks.set(value, rank);
    const logprob = value - normaliser;
    // NaN, which a broken model returns, cannot be written as JSON either.
    return { tokenId: id, logprob: logprob > LEAST_LOGPROB ? logprob : LEAST_LOGPROB, rank };
  };
  return { sampled: describe(tokenId), top: top.map(describe) };
}

/** A value above the last of the largest has no equals outside the list. For other values, the row is counted. */
function rankAmong(row: Float32Array, largest: readonly number[], value: number): number {
  const last = largest.at(-1);
  if (last === undefined || !(value > row[last]!)) return rankOf(row, value);
  return largest.findLastIndex((tokenId) => row[tokenId] === value) + 1;
}
