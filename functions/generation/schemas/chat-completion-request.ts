/** Wire schema of POST /v1/chat/completions. */
import { z } from "zod";

import { checkCombinations, samplingFields } from "./sampling-fields.ts";
import { addIssue, count, flag } from "./wire-types.ts";

const text = z.string("must be a string");

const imageUrl = z.object(
  {
    url: text,
    // Asks OpenAI's models for another resolution; ours have one.
    detail: z.string("must be a string").nullish(),
  },
  'must be an object: {"url": …}',
);

/** The client's own name for a picture, by which it can be asked about again without being sent. */
const uuid = text.min(1, "must not be empty").nullish();

function imagePart<Type extends string, Image extends z.ZodType>(type: Type, image: Image, shape: string) {
  return z
    .object({ type: z.literal(type), image_url: image.nullish(), uuid })
    .refine((part) => isGiven(part.image_url) || isGiven(part.uuid), {
      path: ["image_url"],
      message: `${shape}; it can be null only beside a uuid`,
    });
}

function isGiven(value: unknown): boolean {
  return value !== null && value !== undefined;
}

const contentPart = z.discriminatedUnion(
  "type",
  [
    z.object({ type: z.enum(["text", "input_text", "output_text"]), text }),
    z.object({ type: z.literal("refusal"), refusal: text }),
    imagePart("image_url", imageUrl, 'must be an object: {"url": …}'),
    imagePart("input_image", text, "must be a string"),
    z.object({
      type: z.literal("image_embeds"),
      image_embeds: z.string("must be a string: an .npy or safetensors file in base64, or a reference to one"),
    }),
  ],
  {
    error: ({ input }) =>
      describeUnknown(input, "type", "must be a served part type: text, input_text, image_url or image_embeds"),
  },
);

/** A bare string is a text part, and a part without type is known by its key. */
const normalizedPart = z.preprocess((part) => {
  if (typeof part === "string") return { type: "text", text: part };
  if (typeof part !== "object" || part === null || "type" in part) return part;
  if ("image_url" in part) {
    return {
      ...part,
      type: "image_url",
      image_url: typeof part.image_url === "string" ? { url: part.image_url } : part.image_url,
    };
  }
  if ("image_embeds" in part) return { ...part, type: "image_embeds" };
  return "text" in part ? { ...part, type: "text" } : part;
}, contentPart);

const content = z.union([z.string(), z.array(normalizedPart)], "must be a string or a list of parts");

const absentOrEmpty = z.unknown().refine((value) => value === null || (Array.isArray(value) && value.length === 0), {
  error: "is not served: tools are not",
});

const message = z.discriminatedUnion(
  "role",
  [
    z.object({ role: z.enum(["system", "developer"]), content }),
    z.object({ role: z.literal("user"), content }),
    z.object({
      role: z.literal("assistant"),
      content: content.nullish(),
      tool_calls: absentOrEmpty.optional(),
      function_call: absentOrEmpty.optional(),
    }),
  ],
  {
    error: ({ input }) =>
      isTool(input)
        ? "is tool: tools are not served"
        : describeUnknown(input, "role", "must be one of system, developer, user, assistant"),
  },
);

export const chatCompletionRequest = z
  .object({
    ...samplingFields,
    messages: z.array(message, "must be a list of messages").min(1, "must hold at least one message"),
    max_completion_tokens: samplingFields.max_tokens,
    logprobs: flag.nullish(),
    top_logprobs: count.nullish(),
    add_generation_prompt: flag.nullish(),
  })
  .superRefine((fields, context) => {
    checkCombinations(fields, context);
    if ((fields.top_logprobs ?? 0) > 0 && fields.logprobs !== true) {
      addIssue(context, "top_logprobs", "can only be given when logprobs is true");
    }
  });

export type ChatCompletionRequest = z.output<typeof chatCompletionRequest>;
export type ChatMessageFields = ChatCompletionRequest["messages"][number];

function describeUnknown(input: unknown, key: string, rule: string): string {
  if (!isRecord(input)) return "must be an object";
  return key in input ? `${rule}; got ${JSON.stringify(input[key]).slice(0, 40)}` : rule;
}

function isTool(input: unknown): boolean {
  return isRecord(input) && (input.role === "tool" || input.role === "function");
}

function isRecord(input: unknown): input is Record<string, unknown> {
  return typeof input === "object" && input !== null && !Array.isArray(input);
}
