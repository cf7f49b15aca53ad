/** Converts the last output of a request to the AI SDK's result. */
import type { LanguageModelV4FinishReason, LanguageModelV4Usage, SharedV4ProviderMetadata } from "@ai-sdk/provider";

import type { RequestOutput } from "../../engine/index.ts";
import type { ParsedFinishReason } from "../generation/parsed-output/parsed-delta.ts";

/** @param reason Null if the request ended before its last output. */
export function finishReasonOf(reason: ParsedFinishReason | null): LanguageModelV4FinishReason {
  const raw = reason ?? undefined;
  switch (raw) {
    case "tool_calls":
      return { unified: "tool-calls", raw };
    case "stop":
    case "length":
    case "error":
      return { unified: raw, raw };
    case "abort":
    case "repetition":
    case undefined:
      return { unified: "other", raw };
    default:
      return raw satisfies never;
  }
}

/** @param numReasoningTokens Tokens of thinking among those of the output. */
export function usageOf(last: RequestOutput | null, numReasoningTokens: number): LanguageModelV4Usage {
  if (last === null) {
    return {
      inputTokens: { total: undefined, noCache: undefined, cacheRead: undefined, cacheWrite: undefined },
      outputTokens: { total: undefined, text: undefined, reasoning: undefined },
    };
  }
  const { numPromptTokens, numCachedTokens, numOutputTokens } = last;
  return {
    inputTokens: {
      total: numPromptTokens,
      noCache: numPromptTokens - numCachedTokens,
      cacheRead: numCachedTokens,
      cacheWrite: undefined,
    },
    outputTokens: {
      total: numOutputTokens,
      text: numOutputTokens - numReasoningTokens,
      reasoning: numReasoningTokens,
    },
  };
}

/**
 * `stopReason`: the stop string or stop token id that ended the text; `numImageTokens` and `numVideoTokens`: embeddings
 * of images and of frames of videos in the prompt.
 */
export function providerMetadataOf(last: RequestOutput | null): SharedV4ProviderMetadata {
  const { stopReason = null, numImageTokens = 0, numVideoTokens = 0 } = last ?? {};
  return { fovea: { stopReason, numImageTokens, numVideoTokens } };
}
