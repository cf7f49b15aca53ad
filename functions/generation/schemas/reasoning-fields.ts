/** Wire fields of thinking and of the chat template's variables. */
import { z } from "zod";

import { boundedJson, boundedRecord, flag, wholeNumber } from "./wire-types.ts";

/** Chat templates have a handful of variables, whose values are flags and short texts. */
const MAX_TEMPLATE_ARGUMENTS = 64;
const MAX_TEMPLATE_ARGUMENT_SIZE = 16_384;

/** Variables that the service itself sets. */
const ownVariables = new Set(["messages", "tools", "add_generation_prompt", "raise_exception", "raise_refusal"]);

/** As in vLLM. */
const thinkingTokenBudget = wholeNumber.refine((budget) => budget >= -1, {
  error: "must be at least 0, or -1 for no limit",
  abort: true,
});

export const reasoningFields = {
  chat_template_kwargs: boundedRecord(
    boundedJson(MAX_TEMPLATE_ARGUMENT_SIZE),
    MAX_TEMPLATE_ARGUMENTS,
    "must be an object: variables of the chat template",
  )
    .superRefine((given, context) => {
      const own = Object.keys(given).find((name) => ownVariables.has(name));
      if (own === undefined) return;
      context.addIssue({ code: "custom", path: [own], message: "is set by the service; leave it out" });
    })
    .nullish(),
  reasoning_effort: z
    .enum(
      ["none", "minimal", "low", "medium", "high", "xhigh", "max"],
      "must be none, minimal, low, medium, high, xhigh or max",
    )
    .nullish(),
  include_reasoning: flag.nullish(),
  thinking_token_budget: thinkingTokenBudget.nullish(),
};
