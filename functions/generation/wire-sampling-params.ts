/** Sampling parameters under the names of vLLM's `SamplingParams`. */
import type { GenerationRequest, StructuredOutput } from "../../engine/index.ts";

/** `room` is the number of tokens that the prompt leaves free; the output has at most as many. */
export function toWireSamplingParams(
  { samplingParams, numChoices = 1 }: Pick<GenerationRequest, "samplingParams" | "numChoices">,
  room: number,
): object {
  const { maxTokens, structuredOutput } = samplingParams;
  return {
    n: numChoices,
    temperature: samplingParams.temperature,
    top_p: samplingParams.topP,
    top_k: samplingParams.topK,
    min_p: samplingParams.minP,
    presence_penalty: samplingParams.presencePenalty,
    frequency_penalty: samplingParams.frequencyPenalty,
    repetition_penalty: samplingParams.repetitionPenalty,
    logit_bias: samplingParams.logitBias,
    allowed_token_ids: samplingParams.allowedTokenIds,
    bad_words: samplingParams.badWords,
    seed: samplingParams.seed,
    max_tokens: Math.min(maxTokens ?? room, room),
    min_tokens: samplingParams.minTokens,
    stop: samplingParams.stop,
    stop_token_ids: samplingParams.stopTokenIds,
    include_stop_str_in_output: samplingParams.includeStopStringInOutput,
    ignore_eos: samplingParams.ignoreEos,
    skip_special_tokens: samplingParams.skipSpecialTokens,
    logprobs: samplingParams.logprobs,
    prompt_logprobs: samplingParams.promptLogprobs,
    structured_outputs: structuredOutput === null ? null : toWireStructuredOutput(structuredOutput),
    extra_args: samplingParams.extraArgs,
  };
}

function toWireStructuredOutput(form: StructuredOutput): object {
  switch (form.kind) {
    case "json-object":
      return { json_object: true, ...compactField(form) };
    case "json-schema":
      return { json: JSON.parse(form.schema) as unknown, ...compactField(form) };
    case "regex":
      return { regex: form.pattern };
    case "grammar":
      return { grammar: form.grammar };
    case "choice":
      return { choice: form.choices };
    case "structural":
      return { structural_tag: form.format };
  }
}

function compactField({ isCompact }: { readonly isCompact?: boolean }): object {
  return isCompact === true ? { disable_any_whitespace: true } : {};
}
