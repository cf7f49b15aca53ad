/** Token counts of an answer. */
import type { RequestOutput } from "../../engine/index.ts";

export interface Usage {
  /** Image placeholders count as the tokens they are expanded to. */
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
  readonly prompt_tokens_details: {
    readonly cached_tokens: number;
    readonly multimodal_tokens: { readonly image: number };
  };
}

/** Of the latest output of each sequence. */
export function toUsage(outputs: readonly RequestOutput[]): Usage {
  const sum = (count: (output: RequestOutput) => number): number =>
    outputs.reduce((total, output) => total + count(output), 0);
  const promptTokens = sum((output) => output.numPromptTokens);
  const completionTokens = sum((output) => output.numOutputTokens);
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    prompt_tokens_details: {
      cached_tokens: sum((output) => output.numCachedTokens),
      multimodal_tokens: { image: sum((output) => output.numImageTokens) },
    },
  };
}
