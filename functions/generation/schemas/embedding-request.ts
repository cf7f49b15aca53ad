/** Wire schemas of POST /v1/embeddings: OpenAI's fields, and vLLM's for conversations. */
import { z } from "zod";

import { chatMessages } from "./chat-completion-request.ts";
import { prompts } from "./completion-request.ts";
import { reasoningFields } from "./reasoning-fields.ts";
import { samplingFields } from "./sampling-fields.ts";
import { addIssue, count, flag } from "./wire-types.ts";

/** OpenAI's limit. */
const MAX_INPUTS = 2048;

const embeddingFields = {
  model: samplingFields.model,
  cache_salt: samplingFields.cache_salt,
  request_id: samplingFields.request_id,
  priority: samplingFields.priority,
  add_special_tokens: samplingFields.add_special_tokens,
  truncate_prompt_tokens: samplingFields.truncate_prompt_tokens,
  truncation_side: samplingFields.truncation_side,
  mm_processor_kwargs: samplingFields.mm_processor_kwargs,
  media_io_kwargs: samplingFields.media_io_kwargs,
  encoding_format: z.enum(["float", "base64"], "must be float or base64").nullish(),
  dimensions: count.min(1, "must be at least 1").nullish(),
  normalize: flag.nullish(),
  /** vLLM's newer name of `normalize`. */
  use_activation: flag.nullish(),
};

export const embeddingRequest = z.object({ ...embeddingFields, input: prompts(MAX_INPUTS) });

export const chatEmbeddingRequest = z
  .object({
    ...embeddingFields,
    messages: chatMessages,
    add_generation_prompt: flag.nullish(),
    continue_final_message: flag.nullish(),
    chat_template_kwargs: reasoningFields.chat_template_kwargs,
  })
  .superRefine((fields, context) => {
    if (fields.continue_final_message === true && fields.add_generation_prompt === true) {
      addIssue(context, "continue_final_message", "cannot be combined with add_generation_prompt");
    }
  });

export type EmbeddingRequest = z.output<typeof embeddingRequest>;
export type ChatEmbeddingRequest = z.output<typeof chatEmbeddingRequest>;
