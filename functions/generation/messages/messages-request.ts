/** Wire schemas of POST /v1/messages and /v1/messages/count_tokens. https://docs.anthropic.com/en/api/messages */
import { z } from "zod";

import { samplingLimits, structuredOutputLimits } from "../../../engine/index.ts";
import type { ToolDefinition } from "../../../engine/index.ts";
import { MAX_DESCRIPTION_LENGTH } from "../responses/response-tools.ts";
import { checkToolChoice } from "../schemas/conversation-rules.ts";
import { reasoningFields } from "../schemas/reasoning-fields.ts";
import { samplingFields } from "../schemas/sampling-fields.ts";
import { jsonObject, MAX_TOOLS, parameters } from "../schemas/tool-fields.ts";
import type { ToolChoice } from "../schemas/tool-fields.ts";
import { boundedList, boundedText, count, flag, MAX_NAME_LENGTH, text, wholeNumber } from "../schemas/wire-types.ts";
import { messages, messageToolName, system } from "./message-blocks.ts";

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

const ownTool = z.object({
  type: z.literal("custom").nullish(),
  name: messageToolName,
  description: boundedText(MAX_DESCRIPTION_LENGTH).nullish(),
  input_schema: parameters,
  strict: flag.nullish(),
});
/** A tool that Anthropic runs itself, or whose schema only its models know. The answer does without it. */
const hostedTool = z.object({
  type: boundedText(MAX_NAME_LENGTH).refine((type) => type !== "custom", { error: "must be custom", abort: true }),
});
const toolRule = 'must be an object: {"name": …, "input_schema": …}';

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
  tools: boundedList(z.union([ownTool, hostedTool], toolRule), MAX_TOOLS, "must be a list of tools").nullish(),
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
  checkToolChoice(
    {
      names: toolsOf(fields).map(({ index, tool }) => ({ index, name: tool.name })),
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

type GivenTool = NonNullable<PromptFields["tools"]>[number];

function isOwn(tool: GivenTool): tool is z.output<typeof ownTool> {
  return "input_schema" in tool;
}

/** With their positions in the body. */
export function toolsOf({
  tools,
}: Pick<PromptFields, "tools">): { readonly index: number; readonly tool: ToolDefinition }[] {
  return (tools ?? []).flatMap((tool, index) => {
    if (!isOwn(tool)) return [];
    const { name, description, input_schema: schema, strict } = tool;
    return [{ index, tool: { name, description: description ?? null, parameters: schema, strict: strict === true } }];
  });
}

/** Types of the tools that the answer does without. */
export function hostedTypesOf({ tools }: Pick<PromptFields, "tools">): string[] {
  return [...new Set((tools ?? []).flatMap((tool) => (isOwn(tool) ? [] : [tool.type])))];
}

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
