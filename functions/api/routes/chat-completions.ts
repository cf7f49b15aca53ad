/** POST /v1/chat/completions. */
import type { Handler } from "hono";

import type { AppDependencies } from "../../app-dependencies.ts";
import { chatCompletionKind } from "../../generation/chat-completion-kind.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import { generationRoute } from "../generation-route.ts";

export function chatCompletionsRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return generationRoute(chatCompletionKind, dependencies);
}
