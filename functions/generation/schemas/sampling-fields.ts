/**
 * Wire fields of decoding that chat and plain completions share. Types are checked here, ranges by the engine's
 * `createSamplingParams`, whose errors are answered with the wire's names.
 */
import { z } from "zod";

import { extraArguments } from "./extra-arguments.ts";
import { structuredOutputFields } from "./structured-output-fields.ts";
import { addIssue, count, finite, flag, tokenId, wholeNumber } from "./wire-types.ts";

/** Each string is looked for after every token. */
const MAX_STOP_STRINGS = 64;
const MAX_STOP_TOKEN_IDS = 1024;

export const samplingFields = {
  model: z.string("must be a string").nullish(),
  cache_salt: z.string("must be a string").min(1, "must not be empty").nullish(),
  temperature: finite.nullish(),
  top_p: finite.nullish(),
  top_k: wholeNumber.nullish(),
  min_p: finite.nullish(),
  presence_penalty: finite.nullish(),
  frequency_penalty: finite.nullish(),
  repetition_penalty: finite.nullish(),
  logit_bias: z.record(z.string(), finite, "must be an object: token ids and their biases").nullish(),
  allowed_token_ids: z.array(tokenId, "must be a list of token ids").nullish(),
  bad_words: z.array(z.string("must be a string"), "must be a list of strings").nullish(),
  n: wholeNumber.nullish(),
  prompt_logprobs: count.nullish(),
  seed: wholeNumber.nullish(),
  max_tokens: wholeNumber.nullish(),
  min_tokens: wholeNumber.nullish(),
  stop: z
    .union(
      [z.string().transform((text) => [text]), z.array(z.string("must be a string"))],
      "must be a string or a list",
    )
    .refine((strings) => strings.length <= MAX_STOP_STRINGS, `can hold at most ${MAX_STOP_STRINGS} strings`)
    .nullish(),
  stop_token_ids: z
    .array(tokenId, "must be a list of token ids")
    .max(MAX_STOP_TOKEN_IDS, `can hold at most ${MAX_STOP_TOKEN_IDS} ids`)
    .nullish(),
  ignore_eos: flag.nullish(),
  include_stop_str_in_output: flag.nullish(),
  skip_special_tokens: flag.nullish(),
  add_special_tokens: flag.nullish(),
  stream: flag.nullish(),
  stream_options: z
    .object({ include_usage: flag.nullish(), continuous_usage_stats: flag.nullish() }, "must be an object")
    .nullish(),
  vllm_xargs: extraArguments.nullish(),
  mm_processor_kwargs: z.record(z.string(), z.unknown(), "must be an object").nullish(),
  ...structuredOutputFields,
};

interface CombinedFields {
  readonly stream?: boolean | null | undefined;
  readonly stream_options?: object | null | undefined;
  readonly prompt_logprobs?: number | null | undefined;
  readonly response_format?: object | null | undefined;
  readonly structured_outputs?: object | null | undefined;
}

/** Fields that do not go together. */
export function checkCombinations(fields: CombinedFields, context: z.RefinementCtx): void {
  if (fields.stream_options && fields.stream !== true) {
    addIssue(context, "stream_options", "can only be given when stream is true");
  }
  if (typeof fields.prompt_logprobs === "number" && fields.stream === true) {
    addIssue(context, "prompt_logprobs", "can only be given when stream is false");
  }
  if (fields.structured_outputs && fields.response_format) {
    addIssue(context, "structured_outputs", "cannot be given beside response_format");
  }
}
