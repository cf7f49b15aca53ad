/** Wire schema of POST /v1/completions. */
import { z } from "zod";

import { checkCombinations, samplingFields } from "./sampling-fields.ts";
import { addIssue, count, flag, tokenId } from "./wire-types.ts";

export const DEFAULT_MAX_TOKENS = 16;
const MAX_PROMPTS = 1024;

const tokenIds = z.array(tokenId).min(1, "must hold at least one token id");

/** The four shapes as one: a list of prompts. */
const prompt = z.preprocess(
  (value) => {
    const isOnePrompt = typeof value === "string" || (Array.isArray(value) && typeof value[0] === "number");
    return isOnePrompt ? [value] : value;
  },
  z
    .array(z.union([z.string(), tokenIds], "must be a string or a list of token ids"), {
      error: "must be a string, a list of strings, a list of token ids or a list of such lists",
    })
    .min(1, "must hold at least one prompt")
    .max(MAX_PROMPTS, `can hold at most ${MAX_PROMPTS} prompts`),
);

export const completionRequest = z
  .object({
    ...samplingFields,
    prompt,
    logprobs: count.nullish(),
    echo: flag.nullish(),
  })
  .superRefine((fields, context) => {
    checkCombinations(fields, context);
    if (fields.max_tokens === 0 && fields.echo !== true) {
      addIssue(context, "max_tokens", "must be at least 1 unless echo is true");
    }
  });

export type CompletionRequest = z.output<typeof completionRequest>;
