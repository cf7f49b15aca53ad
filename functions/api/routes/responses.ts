/** POST /v1/responses. */
import type { Handler } from "hono";

import type { AppDependencies } from "../../app-dependencies.ts";
import { responsesKind } from "../../generation/responses/responses-kind.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import { generationRoute } from "../generation-route.ts";

export function responsesRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return generationRoute(responsesKind, dependencies);
}
