/** POST /v1/embeddings, for texts, and for conversations with pictures. */
import type { Context, Handler } from "hono";

import { epochMs } from "../../../engine/index.ts";
import type { AppDependencies } from "../../app-dependencies.ts";
import { chatEmbeddingKind, embeddingKind, isConversation } from "../../generation/embeddings/embedding-kinds.ts";
import { readJsonObject } from "../../http/json-body.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import { generationAnswer } from "../generation-route.ts";

export function embeddingsRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  const { service, bodies, config } = dependencies;
  const answer = embeddingAnswer(dependencies);
  return async (c) => {
    service.checkRoom();
    const startMs = epochMs();
    return answer(c, await readJsonObject(c.req.raw, config.maxBodyBytes, bodies), startMs);
  };
}

/** Answers a body of either kind that has been read, from `startMs` on (since the epoch). */
export function embeddingAnswer(
  dependencies: AppDependencies,
): (c: Context<AppEnvironment>, body: object, startMs: number) => Promise<Response> {
  const answerTexts = generationAnswer(embeddingKind, dependencies);
  const answerConversation = generationAnswer(chatEmbeddingKind, dependencies);
  return async (c, body, startMs) =>
    isConversation(body) ? answerConversation(c, body, startMs) : answerTexts(c, body, startMs);
}
