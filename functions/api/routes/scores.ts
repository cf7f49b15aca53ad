/** POST /score and /rerank, under all paths of vLLM: scores of documents for a query. */
import type { Handler } from "hono";

import type { AppDependencies } from "../../app-dependencies.ts";
import { rerankKind, scoreKindOf } from "../../generation/scores/score-kinds.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import { bodyRoute, generationAnswer, generationRoute } from "../generation-route.ts";
import type { BodyAnswer } from "../generation-route.ts";

export function rerankRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return generationRoute(rerankKind, dependencies);
}

export function rerankAnswer(dependencies: AppDependencies): BodyAnswer {
  return generationAnswer(rerankKind, dependencies);
}

export function scoreRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return bodyRoute(dependencies, scoreAnswer(dependencies));
}

export function scoreAnswer(dependencies: AppDependencies): BodyAnswer {
  return async (c, body, startMs) => generationAnswer(scoreKindOf(body), dependencies)(c, body, startMs);
}
