/** POST /v1/messages and /v1/messages/count_tokens, in Anthropic's form. */
import type { Context, Handler } from "hono";

import type { AppDependencies } from "../../app-dependencies.ts";
import { countedPromptKind, messagesKind } from "../../generation/messages/messages-kind.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import { generationRoute } from "../generation-route.ts";
import { tokenCountRoute } from "../token-count-route.ts";

export function messagesRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return withRequestId(generationRoute(messagesKind, dependencies));
}

/** The tokens of a prompt, with its images, as a message with the same fields would have them. */
export function countTokensRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  const answer = tokenCountRoute(countedPromptKind, dependencies, (numTokens) => ({ input_tokens: numTokens }));
  return withRequestId(answer);
}

/** Anthropic's client shows the id of this header in its errors. */
function withRequestId(handler: Handler<AppEnvironment>): Handler<AppEnvironment> {
  return (c: Context<AppEnvironment>, next) => {
    c.header("Request-Id", c.get("requestId"));
    return handler(c, next);
  };
}
