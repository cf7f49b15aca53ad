/** Wire schemas of POST /v1/messages and /v1/messages/count_tokens. https://docs.anthropic.com/en/api/messages */
import { z } from "zod";

import { samplingLimits, structuredOutputLimits } from "../../../engine/index.ts";
import { checkToolChoice } from "../schemas/conversation-rules.ts";
import { reasoningFields } from "../schemas/reasoning-fields.ts";
import { samplingFields } from "../schemas/sampling-fields.ts";
import { jsonObject, MAX_TOOLS } from "../schemas/tool-fields.ts";
import type { ToolChoice } from "../schemas/tool-fields.ts";
import {
  addIssue,
  boundedList,
  boundedText,
  count,
  flag,
  MAX_NAME_LENGTH,
  text,
  wholeNumber,
} from "../schemas/wire-types.ts";
import { messages, system } from "./message-blocks.ts";
import { visibleToolsOf } from "./message-tools.ts";
import { givenTool, isOwn, messageToolName } from "./tool-definitions.ts";

/** Decoding as in chat completions; the fields that Anthropic spells differently are left out. */
const decodingFields = z.object(samplingFields).omit({
  n: true,
  prompt_logprobs: true,
  max_tokens: true,
  add_special_tokens: true,
  stream_options: true,
  response_format: true,
  stop: true,
}).shape;
const { reasoning_effort: effort, chat_template_kwargs: templateArguments } = reasoningFields;

const singleCall = { disable_parallel_tool_use: flag.nullish() };
const toolChoice = z.discriminatedUnion(
  "type",
  [
    z.object({ type: z.enum(["auto", "any"]), ...singleCall }),
    z.object({ type: z.literal("none") }),
    z.object({ type: z.literal("tool"), name: messageToolName, ...singleCall }),
  ],
  'must be {"type": "auto"}, {"type": "any"}, {"type": "none"} or {"type": "tool", "name": …}',
);

const jsonFormat = z.object(
  {
    type: z.literal("json_schema", "must be json_schema"),
    schema: jsonObject(structuredOutputLimits.sourceBytes, "must be a JSON Schema: an object"),
  },
  'must be an object: {"type": "json_schema", "schema": …}',
);

const thinking = z.discriminatedUnion(
  "type",
  [
    z.object({
      type: z.literal("enabled"),
      budget_tokens: count.nullish(),
      display: boundedText(MAX_NAME_LENGTH).nullish(),
    }),
    z.object({ type: z.enum(["adaptive", "between_tools"]), display: boundedText(MAX_NAME_LENGTH).nullish() }),
    z.object({ type: z.literal("disabled") }),
  ],
  'must be enabled, adaptive or disabled, as in {"type": "disabled"}',
);

/** The fields that determine the prompt. */
const promptFields = {
  model: samplingFields.model,
  cache_salt: samplingFields.cache_salt,
  mm_processor_kwargs: samplingFields.mm_processor_kwargs,
  messages,
  system: system.nullish(),
  tools: boundedList(givenTool, MAX_TOOLS, "must be a list of tools").nullish(),
  tool_choice: toolChoice.nullish(),
  thinking: thinking.nullish(),
  output_config: z.object({ effort, format: jsonFormat.nullish() }, "must be an object").nullish(),
  /** The former name of `output_config.format`. */
  output_format: jsonFormat.nullish(),
  chat_template_kwargs: templateArguments,
};

const messageFields = {
  ...decodingFields,
  ...promptFields,
  max_tokens: wholeNumber,
  stop_sequences: boundedList(text, samplingLimits.stop, "must be a list of strings").nullish(),
};

const checkTools = (
  fields: PromptFields & { readonly structured_outputs?: object | null | undefined },
  context: z.RefinementCtx,
): void => {
  const visibleNames = visibleToolsOf(fields).map(({ tool }) => tool.name);
  // The list is bounded alone; messages can define more.
  if (visibleNames.length > MAX_TOOLS) {
    addIssue(context, "messages", `can load at most ${MAX_TOOLS} tools, not ${visibleNames.length}`);
  }
  checkToolChoice(
    {
      names: (fields.tools ?? []).flatMap((tool, index) => (isOwn(tool) ? [{ index, name: tool.name }] : [])),
      visibleNames,
      choice: toolChoiceOf(fields),
      structuredOutputs: fields.structured_outputs,
    },
    context,
  );
};

const promptRequest = z.object(promptFields);
type PromptFields = z.output<typeof promptRequest>;

export const countTokensRequest = promptRequest.superRefine(checkTools);
export const messagesRequest = z.object(messageFields).superRefine(checkTools);

export type MessagesRequest = z.output<typeof messagesRequest>;
export type CountTokensRequest = z.output<typeof countTokensRequest>;

export function toolChoiceOf({ tool_choice: choice }: Pick<PromptFields, "tool_choice">): ToolChoice | null {
  switch (choice?.type) {
    case undefined:
      return null;
    case "auto":
    case "none":
      return choice.type;
    case "any":
      return "required";
    case "tool":
      return { named: choice.name };
  }
}
