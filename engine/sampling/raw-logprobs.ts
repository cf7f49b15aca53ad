/** Logprobs of the logits as the model gave them, kept aside before any processor or temperature changes a row. */
import type { SampledLogprobs, TokenLogprob } from "../request-output.ts";
import { largestIndices, logSumExp, rankOf } from "./row-operations.ts";

/** JSON has no infinity; no reachable logprob is below. */
const smallestLogprob = -9999;

/** Mutable: one copied row for each request that asks for logprobs, reused from step to step. */
export class RawLogprobs {
  readonly #copies: Float32Array[] = [];
  #numCaptured = 0;

  /** Forgets the rows of the last step. */
  clear(): void {
    this.#numCaptured = 0;
  }

  /** Copies a row and returns what `read` knows it by. */
  capture(row: Float32Array): number {
    const copy = (this.#copies[this.#numCaptured] ??= new Float32Array(row.length));
    copy.set(row);
    return this.#numCaptured++;
  }

  /** As `logprobsOf` of a captured row. */
  read(captured: number, tokenId: number, numTop: number): SampledLogprobs {
    return logprobsOf(this.#copies[captured], tokenId, numTop);
  }
}

/** The token's logprob and the `numTop` largest of a row of raw logits, largest first. */
export function logprobsOf(row: Float32Array, tokenId: number, numTop: number): SampledLogprobs {
  const normaliser = logSumExp(row);
  const describe = (id: number, rank: number): TokenLogprob => ({
    tokenId: id,
    logprob: Math.max(row[id] - normaliser, smallestLogprob),
    rank,
  });
  return {
    sampled: describe(tokenId, rankOf(row, tokenId)),
    top: withRanks(row, largestIndices(row, numTop)).map(([id, rank]) => describe(id, rank)),
  };
}

/** Ranks of the largest values, largest first; only those equal to the last may have equals outside of the list. */
function withRanks(row: Float32Array, largest: readonly number[]): [tokenId: number, rank: number][] {
  const last = largest.at(-1);
  if (last === undefined) return [];
  const lastRank = rankOf(row, last);
  return largest.map((id) => {
    if (row[id] === row[last]) return [id, lastRank];
    return [id, largest.findLastIndex((other) => row[other] === row[id]) + 1];
  });
}
