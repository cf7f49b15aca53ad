/** Wire schema of the conversation of POST /v1/responses: items of messages, calls, results and thinking. */
import { z } from "zod";

import { customInput } from "../custom-tools.ts";
import { describeUnknown, MAX_MESSAGES, MAX_PARTS } from "../schemas/chat-completion-request.ts";
import { inputFile } from "../schemas/document-parts.ts";
import { inputImage } from "../schemas/image-parts.ts";
import { callArguments } from "../schemas/tool-fields.ts";
import { inputVideo } from "../schemas/video-parts.ts";
import { boundedList, boundedText, MAX_NAME_LENGTH, name, text } from "../schemas/wire-types.ts";
import { responseTools } from "./response-tools.ts";

const partRule =
  "must be a supported part type: input_text, input_image, input_file, input_video, output_text or refusal";

const contentPart = z.discriminatedUnion(
  "type",
  [
    z.object({ type: z.enum(["input_text", "output_text", "text"]), text }),
    z.object({ type: z.literal("refusal"), refusal: text }),
    inputImage,
    // OpenAI has none; the form is OpenRouter's.
    inputVideo,
    inputFile,
  ],
  { error: ({ input }) => describeUnknown(input, "type", partRule) },
);

const contentRule = "must be a string or a list of parts";
const content = z.union([text, boundedList(contentPart, MAX_PARTS, contentRule)], contentRule);

const textParts = boundedList(
  z.object({ type: boundedText(MAX_NAME_LENGTH), text }, 'must be an object: {"type": …, "text": …}'),
  MAX_PARTS,
  "must be a list of texts",
);

/** Of the last item: whether the model continues it. */
const status = boundedText(MAX_NAME_LENGTH);

const item = z.discriminatedUnion(
  "type",
  [
    /** Codex sends its tools like this for some models. */
    z.object({ type: z.literal("additional_tools"), tools: responseTools }),
    z.object({
      type: z.literal("message"),
      role: z.enum(["user", "assistant", "system", "developer"], "must be one of user, assistant, system, developer"),
      content,
      status: status.nullish(),
    }),
    z.object({
      type: z.literal("function_call"),
      call_id: name,
      name,
      namespace: name.nullish(),
      arguments: callArguments.nullish(),
    }),
    z.object({ type: z.literal("function_call_output"), call_id: name, output: content }),
    z.object({
      type: z.literal("custom_tool_call"),
      call_id: name,
      name,
      namespace: name.nullish(),
      input: customInput,
    }),
    z.object({ type: z.literal("custom_tool_call_output"), call_id: name, output: content }),
    z.object({
      type: z.literal("reasoning"),
      summary: textParts.nullish(),
      content: textParts.nullish(),
      encrypted_content: text.nullish(),
      status: status.nullish(),
    }),
  ],
  { error: ({ input }) => describeItem(input) },
);

const itemRule =
  "must be a supported item type: message, function_call, function_call_output, custom_tool_call, custom_tool_call_output, additional_tools or reasoning";

function describeItem(input: unknown): string {
  if (typeof input === "object" && input !== null && "type" in input && input.type === "item_reference") {
    return "must not be item_reference: the service stores no items. Send the item itself; clients do with store: false";
  }
  return describeUnknown(input, "type", itemRule);
}

/** Messages may come without a type. */
const normalizedItem = z.preprocess(
  (given) =>
    typeof given === "object" && given !== null && "role" in given && !("type" in given)
      ? { ...given, type: "message" }
      : given,
  item,
);

const inputRule = "must be a string or a list of items";

export const input = z.union(
  [text, boundedList(normalizedItem, MAX_MESSAGES, inputRule).min(1, "must contain at least one item")],
  inputRule,
);

export type InputItem = Exclude<z.output<typeof input>, string>[number];
export type ItemContent = z.output<typeof content>;
