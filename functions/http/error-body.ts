/** OpenAI's error format. Imports nothing, so that a server that is still starting can use it too. */

export interface ErrorBody {
  readonly error: {
    readonly message: string;
    readonly type: string;
    /** Path of the invalid request field: `messages[0].content`. */
    readonly param: string | null;
    readonly code: string;
  };
}

/** A message may quote a value of the request, and a logits processor writes its own. */
const MAX_MESSAGE_LENGTH = 2000;

/** Shortens a message that is too long. */
export function errorBody(status: number, code: string, message: string, param: string | null = null): ErrorBody {
  return { error: { message: shortenMessage(message), type: typeOf(status), param, code } };
}

/** The message, or its beginning with an ellipsis. */
export function shortenMessage(message: string): string {
  return message.length > MAX_MESSAGE_LENGTH ? `${message.slice(0, MAX_MESSAGE_LENGTH).toWellFormed()}…` : message;
}

function typeOf(status: number): string {
  if (status === 401) return "authentication_error";
  if (status === 429) return "rate_limit_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}
