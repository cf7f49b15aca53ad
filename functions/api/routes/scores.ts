/** POST /score and /rerank, under all paths of vLLM: scores of documents for a query. */
import type { Context, Handler } from "hono";

import { epochMs } from "../../../engine/index.ts";
import type { AppDependencies } from "../../app-dependencies.ts";
import { rerankKind, scoreKindOf } from "../../generation/scores/score-kinds.ts";
import { readJsonObject } from "../../http/json-body.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import { generationAnswer, generationRoute } from "../generation-route.ts";

/** Answers a body that has been read, from `startMs` on (since the epoch). */
type BodyAnswer = (c: Context<AppEnvironment>, body: object, startMs: number) => Promise<Response>;

export function rerankRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return generationRoute(rerankKind, dependencies);
}

export function rerankAnswer(dependencies: AppDependencies): BodyAnswer {
  return generationAnswer(rerankKind, dependencies);
}

export function scoreRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  const { service, bodies, config } = dependencies;
  const answer = scoreAnswer(dependencies);
  return async (c) => {
    service.checkRoom();
    const startMs = epochMs();
    return answer(c, await readJsonObject(c.req.raw, config.maxBodyBytes, bodies), startMs);
  };
}

export function scoreAnswer(dependencies: AppDependencies): BodyAnswer {
  return async (c, body, startMs) => generationAnswer(scoreKindOf(body), dependencies)(c, body, startMs);
}
