/** Token counts of an answer. */
import type { RequestOutput } from "../../engine/index.ts";

export interface Usage {
  /** Image placeholders count as their expanded tokens. */
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
  readonly prompt_tokens_details: {
    readonly cached_tokens: number;
    readonly multimodal_tokens: { readonly image: number; readonly video?: number };
    /** Images that the model did not see, because the prompt was truncated or only the last image is shown. */
    readonly omitted_images?: number;
  };
  /** Only for an answer with thinking. */
  readonly completion_tokens_details?: { readonly reasoning_tokens: number };
}

/** From the latest output of each choice. A prompt counts once, with its first choice. */
export function toUsage(outputs: readonly RequestOutput[], numReasoningTokens = 0): Usage {
  return countTokens(
    outputs.filter(({ index }) => index === 0),
    outputs,
    numReasoningTokens,
  );
}

/** For a single choice. */
export function toChoiceUsage(output: RequestOutput, numReasoningTokens = 0): Usage {
  return countTokens([output], [output], numReasoningTokens);
}

function countTokens(
  prompts: readonly RequestOutput[],
  choices: readonly RequestOutput[],
  numReasoningTokens: number,
): Usage {
  const promptTokens = sum(prompts, (output) => output.numPromptTokens);
  const videoTokens = sum(prompts, (output) => output.numVideoTokens ?? 0);
  const omittedImages = sum(prompts, (output) => output.numOmittedImages ?? 0);
  const completionTokens = sum(choices, (output) => output.numOutputTokens);
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    prompt_tokens_details: {
      cached_tokens: sum(prompts, (output) => output.numCachedTokens),
      multimodal_tokens: {
        image: sum(prompts, (output) => output.numImageTokens),
        ...(videoTokens > 0 && { video: videoTokens }),
      },
      ...(omittedImages > 0 && { omitted_images: omittedImages }),
    },
    ...(numReasoningTokens > 0 && { completion_tokens_details: { reasoning_tokens: numReasoningTokens } }),
  };
}

function sum(outputs: readonly RequestOutput[], count: (output: RequestOutput) => number): number {
  return outputs.reduce((total, output) => total + count(output), 0);
}
