/** OpenAI's error format. Imports nothing, so that a server that is still starting can answer in it too. */

export interface ErrorBody {
  readonly error: {
    readonly message: string;
    readonly type: string;
    /** Path of the request field at fault: `messages[0].content`. */
    readonly param: string | null;
    readonly code: string;
  };
}

export function errorBody(status: number, code: string, message: string, param: string | null = null): ErrorBody {
  return { error: { message, type: typeOf(status), param, code } };
}

function typeOf(status: number): string {
  if (status === 401) return "authentication_error";
  if (status === 429) return "rate_limit_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}
