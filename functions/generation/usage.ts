/** Token counts of an answer. */
import type { RequestOutput } from "../../engine/index.ts";

export interface Usage {
  /** Image placeholders count as their expanded tokens. */
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
  readonly prompt_tokens_details: {
    readonly cached_tokens: number;
    readonly multimodal_tokens: { readonly image: number };
    /** Images that the model did not see, because the prompt was truncated or only the last image is shown. */
    readonly omitted_images?: number;
  };
}

/** From the latest output of each choice. A prompt counts once, with its first choice. */
export function toUsage(outputs: readonly RequestOutput[]): Usage {
  return countTokens(
    outputs.filter(({ index }) => index === 0),
    outputs,
  );
}

/** For a single choice. */
export function toChoiceUsage(output: RequestOutput): Usage {
  return countTokens([output], [output]);
}

function countTokens(prompts: readonly RequestOutput[], choices: readonly RequestOutput[]): Usage {
  const promptTokens = sum(prompts, (output) => output.numPromptTokens);
  const omittedImages = sum(prompts, (output) => output.numOmittedImages ?? 0);
  const completionTokens = sum(choices, (output) => output.numOutputTokens);
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    prompt_tokens_details: {
      cached_tokens: sum(prompts, (output) => output.numCachedTokens),
      multimodal_tokens: { image: sum(prompts, (output) => output.numImageTokens) },
      ...(omittedImages > 0 && { omitted_images: omittedImages }),
    },
  };
}

function sum(outputs: readonly RequestOutput[], count: (output: RequestOutput) => number): number {
  return outputs.reduce((total, output) => total + count(output), 0);
}
