/**
 * DRY, "don't repeat yourself": makes a token less likely the longer the passage is that it would repeat, of the prompt
 * or of the output. Short repetitions stay free. Softer than the built-in `ngram_size`.
 *
 *     LOGITS_PROCESSOR_PATH=examples LOGITS_PROCESSORS=processors.dry:Dry npm start
 *     curl ... -d '{"prompt": "a", "vllm_xargs": {"dry_multiplier": 0.8}}'
 *
 * The arguments are those of llama.cpp, and the penalty is `dry_multiplier * dry_base ** (length - dry_allowed_length)`.
 * `dry_sequence_breaker_ids` are the tokens that no repetition reaches across, such as the one of a line break.
 * https://github.com/oobabooga/text-generation-webui/pull/5677
 */
import { RequestLogitsProcessorAdapter } from "fovea";
import type { RequestLogitsProcessor, SamplingParams } from "fovea";

import { numberArgument } from "./numbers.ts";

/** Longer repetitions count as this long. Their penalty is far above all logits. */
const MAX_LENGTH = 50;

interface DryArguments {
  readonly multiplier: number;
  readonly base: number;
  readonly allowedLength: number;
  /** Newest tokens that are searched. */
  readonly lastN: number;
  readonly breakers: ReadonlySet<unknown>;
}

export class Dry extends RequestLogitsProcessorAdapter {
  static override validateParams(params: SamplingParams): void {
    dryArguments(params);
  }

  override isArgmaxInvariant(): boolean {
    return false;
  }

  override newRequestLogitsProcessor(params: SamplingParams): RequestLogitsProcessor | null {
    const given = dryArguments(params);
    if (given.multiplier === 0) return null;
    const longest = new Map<number, number>();
    return (promptTokenIds: readonly number[], outputTokenIds: readonly number[], row: Float32Array) => {
      findRepetitions(promptTokenIds, outputTokenIds, given, longest);
      for (const [tokenId, length] of longest) {
        row[tokenId]! -= given.multiplier * given.base ** (length - given.allowedLength);
      }
      return row;
    };
  }
}

function dryArguments(params: SamplingParams): DryArguments {
  return {
    multiplier: numberArgument(params, "dry_multiplier", 0, 100) ?? 0,
    base: numberArgument(params, "dry_base", 1, 10) ?? 1.75,
    allowedLength: numberArgument(params, "dry_allowed_length", 1, MAX_LENGTH) ?? 2,
    lastN: numberArgument(params, "dry_penalty_last_n", 1, 4096) ?? 1024,
    breakers: new Set(breakerIds(params)),
  };
}

function breakerIds({ extraArgs: { dry_sequence_breaker_ids: ids = [] } }: SamplingParams): readonly number[] {
  if (Array.isArray(ids) && ids.every(isTokenId)) return ids;
  throw new Error(`dry_sequence_breaker_ids must be a list of token ids, got ${JSON.stringify(ids)}.`);
}

function isTokenId(value: unknown): value is number {
  return Number.isInteger(value) && Number(value) >= 0;
}

/**
 * Fills `longest` with the tokens that followed an earlier occurrence of the newest tokens, and the length of the
 * longest such passage. Looks at `lastN` tokens, and compares up to `MAX_LENGTH` of them where the newest one occurs.
 */
function findRepetitions(
  promptTokenIds: readonly number[],
  outputTokenIds: readonly number[],
  { allowedLength, lastN, breakers }: DryArguments,
  longest: Map<number, number>,
): void {
  longest.clear();
  const numPrompt = promptTokenIds.length;
  const end = numPrompt + outputTokenIds.length;
  const first = Math.max(0, end - lastN);
  const at = (index: number) => (index < numPrompt ? promptTokenIds[index] : outputTokenIds[index - numPrompt]);
  for (let next = end - 1; next > first; next--) {
    let length = 0;
    while (length < MAX_LENGTH && next - 1 - length >= first) {
      const tokenId = at(next - 1 - length);
      if (tokenId !== at(end - 1 - length) || breakers.has(tokenId)) break;
      length++;
    }
    const tokenId = at(next)!;
    if (length >= allowedLength && length > (longest.get(tokenId) ?? 0)) longest.set(tokenId, length);
  }
}
