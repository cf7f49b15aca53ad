/** Wire schema of POST /v1/chat/completions. */
import { z } from "zod";

import { documentParts, withTypeOfDocument } from "./document-parts.ts";
import { imageParts, withTypeOfImage } from "./image-parts.ts";
import { reasoningFields } from "./reasoning-fields.ts";
import { checkCombinations, samplingFields } from "./sampling-fields.ts";
import { checkTools, toolCalls, toolFields } from "./tool-fields.ts";
import { videoParts, withTypeOfVideo } from "./video-parts.ts";
import { addIssue, boundedList, count, flag, name, text } from "./wire-types.ts";

/** More messages than fit into any context. */
export const MAX_MESSAGES = 4096;
export const MAX_PARTS = 4096;

const typedPart = z.discriminatedUnion(
  "type",
  [
    z.object({ type: z.enum(["text", "input_text", "output_text"]), text }),
    z.object({ type: z.literal("refusal"), refusal: text }),
    ...imageParts,
    ...videoParts,
    ...documentParts,
  ],
  {
    error: ({ input }) =>
      describeUnknown(
        input,
        "type",
        "must be a supported part type: text, image_url, video_url, video, file, document_url, input_text, input_image, input_video, input_file or image_embeds",
      ),
  },
);

/** A plain string is a text part, and a part without type is recognised by its key. */
export const contentPart = z.preprocess((part) => {
  if (typeof part === "string") return { type: "text", text: part };
  if (typeof part !== "object" || part === null || "type" in part) return part;
  return "text" in part ? { ...part, type: "text" } : withTypeOfDocument(withTypeOfVideo(withTypeOfImage(part)));
}, typedPart);

const contentRule = "must be a string or a list of parts";
const content = z.union([text, boundedList(contentPart, MAX_PARTS, contentRule)], contentRule);

function absentOrEmpty(advice: string) {
  return z
    .unknown()
    .refine((value) => value === null || (Array.isArray(value) && value.length === 0), {
      error: `is not supported; ${advice}`,
      abort: true,
    })
    .optional();
}

/** The name of a participant. Chat templates may print it. */
const participant = name.nullish();

const message = z.discriminatedUnion(
  "role",
  [
    z.object({ role: z.enum(["system", "developer"]), content, name: participant }),
    z.object({
      role: z.literal("user"),
      content,
      name: participant,
      // Where Ollama's own API has them.
      images: absentOrEmpty('send parts of content: {"type": "image_url", "image_url": {"url": …}}'),
    }),
    z.object({
      role: z.literal("assistant"),
      content: content.nullish(),
      name: participant,
      tool_calls: toolCalls.nullish(),
      function_call: absentOrEmpty("use tool_calls"),
      // Servers return the same text under both names.
      reasoning_content: text.nullish(),
      reasoning: text.nullish(),
    }),
    z.object({ role: z.literal("tool"), content, name: participant, tool_call_id: participant }),
  ],
  {
    error: ({ input }) => describeUnknown(input, "role", "must be one of system, developer, user, assistant, tool"),
  },
);

export const chatMessages = boundedList(message, MAX_MESSAGES, "must be a list of messages").min(
  1,
  "must contain at least one message",
);

export const chatCompletionRequest = z
  .object({
    ...samplingFields,
    ...toolFields,
    ...reasoningFields,
    messages: chatMessages,
    max_completion_tokens: samplingFields.max_tokens,
    logprobs: flag.nullish(),
    top_logprobs: count.nullish(),
    add_generation_prompt: flag.nullish(),
    continue_final_message: flag.nullish(),
  })
  .superRefine((fields, context) => {
    checkCombinations(fields, context);
    if (fields.tools || fields.tool_choice) checkTools(fields, context);
    if (fields.continue_final_message === true && fields.add_generation_prompt === true) {
      addIssue(context, "continue_final_message", "cannot be combined with add_generation_prompt");
    }
    if ((fields.top_logprobs ?? 0) > 0 && fields.logprobs !== true) {
      addIssue(context, "top_logprobs", "can only be given when logprobs is true");
    }
  });

export type ChatCompletionRequest = z.output<typeof chatCompletionRequest>;
export type ChatMessageFields = ChatCompletionRequest["messages"][number];

/** A message for a value whose `key` has no known value. */
export function describeUnknown(input: unknown, key: string, rule: string): string {
  if (!isRecord(input)) return "must be an object";
  return key in input ? `${rule}; got ${describe(input[key])}` : rule;
}

/** Short, whatever the size of the value. */
function describe(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.slice(0, 40));
  if (typeof value !== "object" || value === null) return String(value);
  return Array.isArray(value) ? "a list" : "an object";
}

function isRecord(input: unknown): input is Record<string, unknown> {
  return typeof input === "object" && input !== null && !Array.isArray(input);
}
