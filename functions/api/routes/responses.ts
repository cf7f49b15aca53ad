/** POST /v1/responses and /v1/responses/input_tokens. */
import type { Handler } from "hono";

import type { AppDependencies } from "../../app-dependencies.ts";
import { responsesKind } from "../../generation/responses/responses-kind.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import { generationRoute } from "../generation-route.ts";
import { tokenCountRoute } from "../token-count-route.ts";

export function responsesRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return generationRoute(responsesKind, dependencies);
}

/** The tokens of a prompt, with its images, as a response with the same fields would have them. */
export function responseInputTokensRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return tokenCountRoute(responsesKind, dependencies, (numTokens) => ({
    object: "response.input_tokens",
    input_tokens: numTokens,
  }));
}
