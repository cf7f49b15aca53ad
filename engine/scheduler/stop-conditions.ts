/** Ends a sequence by its tokens. Stop strings are handled where tokens become text. */
import type { FinishReason, TokenStopReason } from "../contract/request-output.ts";
import type { Sequence } from "./sequence.ts";

export interface TokenStop {
  readonly finishReason: FinishReason;
  /** Null for the model's own end token and for length limits. */
  readonly stopReason: TokenStopReason | null;
}

export interface StopLimits {
  readonly eosTokenIds: ReadonlySet<number>;
  readonly maxModelLen: number;
}

/**
 * Checks the newest token in vLLM's order: end token, stop token (neither before `minTokens`), length, repetition (not
 * before `minTokens`). Call it once for each token. Null means that the sequence continues. The end token of a
 * structured output always ends it: before `minTokens` it appears only if the grammar allows nothing else.
 */
export function checkStop(sequence: Sequence, { eosTokenIds, maxModelLen }: StopLimits): TokenStop | null {
  const { samplingParams, outputTokenIds } = sequence;
  const tokenId = outputTokenIds.at(-1)!;
  // It follows every token, also those before `minTokens`.
  const isLoop = sequence.repetitionDetector?.readNewest(outputTokenIds) ?? false;
  const isLongEnoughToStop = outputTokenIds.length >= samplingParams.minTokens;
  if (!samplingParams.ignoreEos && eosTokenIds.has(tokenId) && (isLongEnoughToStop || sequence.grammar !== null)) {
    return { finishReason: "stop", stopReason: null };
  }
  if (isLongEnoughToStop && samplingParams.stopTokenIds.includes(tokenId)) {
    return { finishReason: "stop", stopReason: tokenId };
  }
  const isFull = sequence.numPositions >= maxModelLen;
  const isLongEnough = samplingParams.maxTokens !== null && outputTokenIds.length >= samplingParams.maxTokens;
  if (isFull || isLongEnough) return { finishReason: "length", stopReason: null };
  if (isLoop && isLongEnoughToStop) return { finishReason: "repetition", stopReason: "repetition_detected" };
  return null;
}
