/** POST /v1/embeddings, for texts, and for conversations with pictures. */
import type { Handler } from "hono";

import { epochMs } from "../../../engine/index.ts";
import type { AppDependencies } from "../../app-dependencies.ts";
import { chatEmbeddingKind, embeddingKind, isConversation } from "../../generation/embeddings/embedding-kinds.ts";
import { readJsonObject } from "../../http/json-body.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import { generationAnswer } from "../generation-route.ts";

export function embeddingsRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  const { service, bodies, config } = dependencies;
  const answerTexts = generationAnswer(embeddingKind, dependencies);
  const answerConversation = generationAnswer(chatEmbeddingKind, dependencies);
  return async (c) => {
    service.checkRoom();
    const startMs = epochMs();
    const body = await readJsonObject(c.req.raw, config.maxBodyBytes, bodies);
    return isConversation(body) ? answerConversation(c, body, startMs) : answerTexts(c, body, startMs);
  };
}
