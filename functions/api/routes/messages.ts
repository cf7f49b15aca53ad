/** POST /v1/messages and /v1/messages/count_tokens, in Anthropic's form. */
import type { Handler } from "hono";

import type { AppDependencies } from "../../app-dependencies.ts";
import { countedPromptKind, messagesKind } from "../../generation/messages/messages-kind.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import { generationRoute } from "../generation-route.ts";
import { tokenCountRoute } from "../token-count-route.ts";

export function messagesRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return generationRoute(messagesKind, dependencies);
}

/** The tokens of a prompt, with its images, as a message with the same fields would have them. */
export function countTokensRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return tokenCountRoute(countedPromptKind, dependencies, (numTokens) => ({ input_tokens: numTokens }));
}
