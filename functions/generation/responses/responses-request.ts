/** Wire schema of POST /v1/responses. https://platform.openai.com/docs/api-reference/responses/create */
import { z } from "zod";

import { structuredOutputLimits } from "../../../engine/index.ts";
import { checkToolChoice } from "../schemas/conversation-rules.ts";
import { reasoningFields } from "../schemas/reasoning-fields.ts";
import { samplingFields } from "../schemas/sampling-fields.ts";
import { jsonObject, MAX_TOOLS } from "../schemas/tool-fields.ts";
import {
  addIssue,
  boundedList,
  boundedRecord,
  boundedText,
  count,
  flag,
  MAX_NAME_LENGTH,
  text,
} from "../schemas/wire-types.ts";
import { input } from "./input-items.ts";
import { allowedNamesOf, functionsOf, responseToolChoice, responseTools, toolsForModel } from "./response-tools.ts";

/** OpenAI's limits of metadata. */
const MAX_METADATA_ENTRIES = 16;
const MAX_METADATA_NAME_LENGTH = 64;
const MAX_METADATA_VALUE_LENGTH = 512;
/** OpenAI has fewer than ten kinds of additional output. */
const MAX_INCLUDED = 32;

/** Decoding as in chat completions; the fields that chat completions spell differently are left out. */
const decodingFields = z.object(samplingFields).omit({
  n: true,
  prompt_logprobs: true,
  max_tokens: true,
  add_special_tokens: true,
  stream_options: true,
  response_format: true,
}).shape;
const { reasoning_effort: effort, ...thinkingFields } = reasoningFields;

const schema = jsonObject(structuredOutputLimits.sourceBytes, "must be a JSON Schema: an object");

const textFormat = z.discriminatedUnion(
  "type",
  [
    z.object({ type: z.literal("text") }),
    z.object({ type: z.literal("json_object") }),
    z.object({
      type: z.literal("json_schema"),
      name: boundedText(MAX_NAME_LENGTH).nullish(),
      description: text.nullish(),
      schema,
      strict: flag.nullish(),
    }),
  ],
  "must be text, json_object or json_schema",
);

const label = boundedText(MAX_NAME_LENGTH).nullish();

export const responsesRequest = z
  .object({
    ...decodingFields,
    ...thinkingFields,
    input,
    instructions: text.nullish(),
    tools: responseTools.nullish(),
    tool_choice: responseToolChoice.nullish(),
    parallel_tool_calls: flag.nullish(),
    max_output_tokens: samplingFields.max_tokens,
    max_tool_calls: count.nullish(),
    text: z.object({ format: textFormat.nullish(), verbosity: label }, "must be an object").nullish(),
    reasoning: z.object({ effort, summary: label, generate_summary: label }, "must be an object").nullish(),
    top_logprobs: count.nullish(),
    include: boundedList(boundedText(MAX_NAME_LENGTH), MAX_INCLUDED, "must be a list of names").nullish(),
    metadata: boundedRecord(
      boundedText(MAX_METADATA_VALUE_LENGTH),
      MAX_METADATA_ENTRIES,
      "must be an object: names and texts",
      MAX_METADATA_NAME_LENGTH,
    ).nullish(),
    truncation: z.enum(["auto", "disabled"], "must be auto or disabled").nullish(),
    store: flag.nullish(),
    user: label,
    safety_identifier: label,
    prompt_cache_key: label,
    /** Streams always have usage, and deltas of their true length. */
    stream_options: z
      .object({ include_obfuscation: flag.nullish(), include_usage: flag.nullish() }, "must be an object")
      .nullish(),
  })
  .superRefine((fields, context) => {
    const { tools, choice } = toolsForModel(fields);
    const { text: form, structured_outputs: structured } = fields;
    const functions = functionsOf(fields).map(({ index, tool }) => ({ index, name: tool.name }));
    // The list and each namespace are bounded alone.
    if (functions.length > MAX_TOOLS) {
      addIssue(context, "tools", `can hold at most ${MAX_TOOLS} functions, not ${functions.length}`);
    }
    const unknown = allowedNamesOf(fields).find((allowed) => !functions.some(({ name }) => name === allowed));
    if (unknown !== undefined) addIssue(context, "tool_choice", `names a tool that tools does not have: ${unknown}`);
    const isFormed = form?.format !== null && form?.format !== undefined && form.format.type !== "text";
    if (isFormed && structured) addIssue(context, "structured_outputs", "cannot be combined with text.format");
    checkToolChoice(
      {
        names: functions,
        visibleNames: tools.map(({ name }) => name),
        choice,
        structuredOutputs: structured,
      },
      context,
    );
  });

export type ResponsesRequest = z.output<typeof responsesRequest>;
