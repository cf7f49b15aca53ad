/** Anthropic's error format, for /v1/messages and for requests of its clients to routes of both APIs. */
import type { Context } from "hono";

import type { ErrorBody } from "./error-body.ts";

export interface AnthropicErrorBody {
  readonly type: "error";
  readonly error: {
    readonly type: string;
    readonly message: string;
    readonly details?: { readonly error_code: string };
  };
}

/** Whether a request to a route of both APIs expects Anthropic's form: its clients always send this header. */
export function isFromAnthropicClient(c: Context): boolean {
  return c.req.header("anthropic-version") !== undefined;
}

/** Types of OpenAI's format that Anthropic calls by another name. */
const types: Readonly<Record<string, string>> = {
  server_error: "api_error",
};

/** By our code, where Anthropic has a type of its own. */
const typesOfCodes: Readonly<Record<string, string>> = {
  body_too_large: "request_too_large",
  model_not_found: "not_found_error",
  not_found: "not_found_error",
  queue_full: "rate_limit_error",
  model_loading: "overloaded_error",
  shutting_down: "overloaded_error",
  engine_stalled: "overloaded_error",
  device_lost: "overloaded_error",
  out_of_memory: "overloaded_error",
  too_many_bodies: "overloaded_error",
  request_timeout: "timeout_error",
};

/** By our code: the words by which Anthropic's clients recognise an error; they then shorten the conversation. */
const openings: Readonly<Record<string, string>> = {
  context_length_exceeded: "prompt is too long: ",
};

/** Codes that Anthropic's clients read, to send the request in another form. */
const detailedCodes: ReadonlySet<string> = new Set(["thread_not_found"]);

/** The format has no field for the path of the invalid field, so the message starts with it. */
export function toAnthropicError({ error: { type, code, message, param } }: ErrorBody): AnthropicErrorBody {
  const path = param === null || param === "" || message.includes(param) ? "" : `${param}: `;
  const opening = openings[code] ?? path;
  return {
    type: "error",
    error: {
      type: typesOfCodes[code] ?? types[type] ?? type,
      message: `${opening}${message}`,
      ...(detailedCodes.has(code) && { details: { error_code: code } }),
    },
  };
}
