/**
 * Wire fields of decoding that chat and text completions share. Types are checked here. Ranges are checked by the
 * engine's `createSamplingParams`, whose errors are translated to the wire's names.
 */
import { z } from "zod";

import { samplingLimits } from "../../../engine/index.ts";
import { MAX_REQUEST_ID_LENGTH, requestIdPattern } from "../../http/request-id.ts";
import { extraArguments } from "./extra-arguments.ts";
import { structuredOutputFields } from "./structured-output-fields.ts";
import {
  addIssue,
  boundedJson,
  boundedList,
  boundedRecord,
  boundedText,
  count,
  finite,
  flag,
  MAX_NAME_LENGTH,
  name,
  text,
  tokenIdList,
  wholeNumber,
} from "./wire-types.ts";

/** Image processors have a few dozen options, and the longest value is a list of a few numbers. */
const MAX_PROCESSOR_OPTIONS = 64;
const MAX_PROCESSOR_OPTION_SIZE = 4096;

const mediaOptions = boundedRecord(boundedJson(MAX_PROCESSOR_OPTION_SIZE), MAX_PROCESSOR_OPTIONS, "must be an object");

/** Of vLLM's options for images, the values that change nothing: images are RGB, on white where they are transparent. */
const fixedImageOptions: Readonly<Record<string, string>> = {
  image_mode: '"RGB"',
  rgba_background_color: "[255,255,255]",
};

const mediaIoOptions = mediaOptions.superRefine(({ image }, context) => {
  if (image === undefined || image === null) return;
  const refuse = (path: readonly string[], message: string): void =>
    context.addIssue({ code: "custom", path: ["image", ...path], message });
  if (typeof image !== "object" || Array.isArray(image)) return refuse([], "must be an object");
  for (const [name, value] of Object.entries(image)) {
    const only = Object.hasOwn(fixedImageOptions, name) ? fixedImageOptions[name] : undefined;
    if (value === null || JSON.stringify(value) === only) continue;
    refuse([name], only === undefined ? "cannot be set; leave it out" : `can only be ${only}; leave it out`);
  }
});

/** It ends up in headers and logs. */
const requestId = boundedText(MAX_REQUEST_ID_LENGTH).regex(requestIdPattern, {
  error: "must consist of letters, digits and the characters _ . : = + / -",
  abort: true,
});

/** As many as a 32-bit integer has; vLLM's clients send small numbers. */
const MAX_PRIORITY = 2 ** 31 - 1;
const priority = wholeNumber.refine((value) => Math.abs(value) <= MAX_PRIORITY, {
  error: `must be between -${MAX_PRIORITY} and ${MAX_PRIORITY}`,
  abort: true,
});

const wordList = boundedList(
  boundedText(samplingLimits.badWordsCharacters),
  samplingLimits.badWords,
  "must be a list of strings",
);

export const samplingFields = {
  model: boundedText(MAX_NAME_LENGTH).nullish(),
  cache_salt: name.nullish(),
  request_id: requestId.nullish(),
  priority: priority.nullish(),
  temperature: finite.nullish(),
  top_p: finite.nullish(),
  top_k: wholeNumber.nullish(),
  min_p: finite.nullish(),
  presence_penalty: finite.nullish(),
  frequency_penalty: finite.nullish(),
  repetition_penalty: finite.nullish(),
  logit_bias: boundedRecord(
    finite,
    samplingLimits.logitBias,
    "must be an object: token ids and their biases",
  ).nullish(),
  allowed_token_ids: tokenIdList(samplingLimits.allowedTokenIds, "must be a list of token ids").nullish(),
  bad_words: wordList.nullish(),
  n: wholeNumber.nullish(),
  prompt_logprobs: count.nullish(),
  seed: wholeNumber.nullish(),
  max_tokens: wholeNumber.nullish(),
  min_tokens: wholeNumber.nullish(),
  stop: z
    .preprocess(
      (value) => (typeof value === "string" ? [value] : value),
      boundedList(text, samplingLimits.stop, "must be a string or a list"),
    )
    .nullish(),
  stop_token_ids: tokenIdList(samplingLimits.stopTokenIds, "must be a list of token ids").nullish(),
  ignore_eos: flag.nullish(),
  include_stop_str_in_output: flag.nullish(),
  repetition_detection: z
    .object(
      { max_pattern_size: count.nullish(), min_pattern_size: count.nullish(), min_count: count.nullish() },
      "must be an object",
    )
    .nullish(),
  skip_special_tokens: flag.nullish(),
  add_special_tokens: flag.nullish(),
  truncate_prompt_tokens: wholeNumber.nullish(),
  truncation_side: z.enum(["left", "right"], "must be left or right").nullish(),
  return_token_ids: flag.nullish(),
  return_tokens_as_token_ids: flag.nullish(),
  stream: flag.nullish(),
  stream_options: z
    .object({ include_usage: flag.nullish(), continuous_usage_stats: flag.nullish() }, "must be an object")
    .nullish(),
  vllm_xargs: extraArguments.nullish(),
  mm_processor_kwargs: mediaOptions.nullish(),
  media_io_kwargs: mediaIoOptions.nullish(),
  ...structuredOutputFields,
};

interface CombinedFields {
  readonly stream?: boolean | null | undefined;
  readonly stream_options?: object | null | undefined;
  readonly prompt_logprobs?: number | null | undefined;
  readonly response_format?: object | null | undefined;
  readonly structured_outputs?: object | null | undefined;
}

/** Rejects fields that cannot be combined. */
export function checkCombinations(fields: CombinedFields, context: z.RefinementCtx): void {
  if (fields.stream_options && fields.stream !== true) {
    addIssue(context, "stream_options", "can only be given when stream is true");
  }
  if (typeof fields.prompt_logprobs === "number" && fields.stream === true) {
    addIssue(context, "prompt_logprobs", "can only be given when stream is false");
  }
  if (fields.structured_outputs && fields.response_format) {
    addIssue(context, "structured_outputs", "cannot be combined with response_format");
  }
}
