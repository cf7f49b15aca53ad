/** POST /v1/completions. */
import type { Handler } from "hono";

import type { AppDependencies } from "../../app-dependencies.ts";
import { completionKind } from "../../generation/completion-kind.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import { generationRoute } from "../generation-route.ts";

export function completionsRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return generationRoute(completionKind, dependencies);
}
