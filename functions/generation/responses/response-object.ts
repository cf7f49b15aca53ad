/** The response object of POST /v1/responses: the state of an answer and the fields of its request. */
import type { RequestOutput, SamplingParams } from "../../../engine/index.ts";
import type { ErrorBody } from "../../http/error-body.ts";
import type { AnswerHead } from "../answer-options.ts";
import { functionsOf } from "./response-tools.ts";
import type { ResponsesRequest } from "./responses-request.ts";

export type ResponseState =
  | { readonly status: "in_progress" }
  | { readonly status: "completed" }
  | { readonly status: "incomplete"; readonly reason: "max_output_tokens" }
  | { readonly status: "failed"; readonly error: ErrorBody };

export interface ResponseContent {
  readonly output: readonly object[];
  /** The latest output of the engine; null before the first. */
  readonly last: RequestOutput | null;
  readonly numReasoningTokens: number;
}

interface AnsweredFields extends ResponsesRequest {
  /** Of the model. */
  readonly defaults: Partial<SamplingParams>;
}

export function toResponseObject(
  { id, created, model }: AnswerHead,
  fields: AnsweredFields,
  state: ResponseState,
  { output, last, numReasoningTokens }: ResponseContent,
): object {
  const isOver = state.status !== "in_progress";
  return {
    id,
    object: "response",
    created_at: created,
    status: state.status,
    completed_at: state.status === "completed" ? Math.floor(Date.now() / 1000) : null,
    error: state.status === "failed" ? toResponseError(state.error) : null,
    incomplete_details: state.status === "incomplete" ? { reason: state.reason } : null,
    model,
    output,
    ...(isOver && last !== null && { usage: toResponseUsage(last, numReasoningTokens) }),
    ...requestFields(fields),
  };
}

/** What the request leaves open has the value that the answer was sampled with. */
function requestFields(fields: AnsweredFields): object {
  const { reasoning, text, tool_choice: choice, user, defaults } = fields;
  return {
    background: false,
    frequency_penalty: fields.frequency_penalty ?? defaults.frequencyPenalty ?? 0,
    instructions: fields.instructions ?? null,
    max_output_tokens: fields.max_output_tokens ?? null,
    max_tool_calls: fields.max_tool_calls ?? null,
    metadata: fields.metadata ?? {},
    parallel_tool_calls: fields.parallel_tool_calls ?? true,
    presence_penalty: fields.presence_penalty ?? defaults.presencePenalty ?? 0,
    previous_response_id: null,
    prompt_cache_key: fields.prompt_cache_key ?? null,
    reasoning: { effort: reasoning?.effort ?? null, summary: null },
    safety_identifier: fields.safety_identifier ?? null,
    service_tier: "default",
    store: false,
    temperature: fields.temperature ?? defaults.temperature ?? 1,
    text: { format: toWireFormat(text?.format), ...(text?.verbosity && { verbosity: text.verbosity }) },
    tool_choice: choice ?? "auto",
    tools: functionsOf({ tools: fields.tools, input: "" }).flatMap(
      ({ tool: { name, description, parameters, strict }, inNamespace, custom }) => {
        if (inNamespace !== null) return [];
        return [custom ?? { type: "function", name, description, parameters, strict }];
      },
    ),
    top_logprobs: fields.top_logprobs ?? 0,
    top_p: fields.top_p ?? defaults.topP ?? 1,
    // A prompt that is too long is rejected, whatever the request says.
    truncation: "disabled",
    ...(typeof user === "string" && { user }),
  };
}

function toWireFormat(format: NonNullable<ResponsesRequest["text"]>["format"] | undefined): object {
  if (!format) return { type: "text" };
  if (format.type !== "json_schema") return { type: format.type };
  const { name, description, schema } = format;
  return {
    type: "json_schema",
    name: name ?? "response",
    schema,
    // The form is enforced in any case.
    strict: true,
    ...(typeof description === "string" && { description }),
  };
}

function toResponseUsage(output: RequestOutput, numReasoningTokens: number): object {
  const { numPromptTokens, numCachedTokens, numOutputTokens } = output;
  return {
    input_tokens: numPromptTokens,
    input_tokens_details: { cached_tokens: numCachedTokens, cache_write_tokens: 0 },
    output_tokens: numOutputTokens,
    output_tokens_details: { reasoning_tokens: numReasoningTokens },
    total_tokens: numPromptTokens + numOutputTokens,
  };
}

/** By our own code. OpenAI's list of codes is closed. */
const responseErrorCodes: Readonly<Record<string, string>> = {
  queue_full: "rate_limit_exceeded",
  invalid_image: "invalid_image",
  invalid_image_reference: "invalid_image_url",
  image_too_large: "image_too_large",
  image_unreachable: "failed_to_download_image",
};

function toResponseError({ error: { code, message, type } }: ErrorBody): object {
  const fallback = type === "invalid_request_error" ? "invalid_prompt" : "server_error";
  return { code: responseErrorCodes[code] ?? fallback, message };
}
