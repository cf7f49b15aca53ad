/** Errors of a stream, after its status has been sent. */
import type { Context } from "hono";

import type { ErrorBody } from "../http/error-body.ts";
import { toErrorAnswer } from "../http/errors.ts";
import type { AppEnvironment } from "../http/request-trace.ts";
import type { Logger } from "../logger.ts";

/** Returns a function that describes an error to the client, and logs it if it is the service's own. */
export function streamErrorsOf(c: Context<AppEnvironment>, logger: Logger): (error: unknown) => ErrorBody {
  return (error) => {
    const requestId = c.get("requestId");
    const { status, body } = toErrorAnswer(error, requestId, c.get("requestPaths"));
    if (status === 500) logger.error("A stream failed.", { requestId, error });
    return body;
  };
}
