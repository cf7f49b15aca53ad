/** Wire schema of POST /v1/completions. */
import { z } from "zod";

import { completionImages } from "./completion-images.ts";
import { checkCombinations, samplingFields } from "./sampling-fields.ts";
import { addIssue, boundedList, count, flag, text, tokenIdList } from "./wire-types.ts";

export const DEFAULT_MAX_TOKENS = 16;
export const MAX_PROMPTS = 1024;
/** As long as the longest contexts of models. The engine checks its own limit. */
export const MAX_PROMPT_TOKENS = 1_048_576;

const promptRule = "must be a string or a list of token ids";

const promptTokenIds = tokenIdList(MAX_PROMPT_TOKENS, promptRule).refine((ids) => ids.length > 0, {
  error: "must contain at least one token id",
  abort: true,
});

/** Normalises the four shapes to a list of prompts. */
export function prompts(maxLength: number) {
  return z.preprocess(
    (value, context) => {
      if (typeof value === "string") return [value];
      if (!Array.isArray(value) || typeof value[0] !== "number") return value;
      // Here, so that the path of a wrong id has no index of a prompt that the request does not have.
      for (const { path, message } of promptTokenIds.safeParse(value).error?.issues ?? []) {
        context.addIssue({ code: "custom", path: [...path], message });
      }
      return [value];
    },
    boundedList(
      z.union([text, promptTokenIds], promptRule),
      maxLength,
      "must be a string, a list of strings, a list of token ids or a list of such lists",
    ).min(1, "must contain at least one prompt"),
  );
}

export const completionRequest = z
  .object({
    ...samplingFields,
    prompt: prompts(MAX_PROMPTS),
    images: completionImages.nullish(),
    logprobs: count.nullish(),
    echo: flag.nullish(),
  })
  .superRefine((fields, context) => {
    checkCombinations(fields, context);
    const numImages = fields.images?.length ?? 0;
    if (numImages > 0 && fields.prompt.length > 1) {
      const rule = `can be given beside one prompt, not beside ${fields.prompt.length}; send one request per prompt`;
      addIssue(context, "images", rule);
    }
    if (fields.max_tokens === 0 && fields.echo !== true) {
      addIssue(context, "max_tokens", "must be at least 1 unless echo is true");
    }
  });

export type CompletionRequest = z.output<typeof completionRequest>;
