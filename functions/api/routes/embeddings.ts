/** POST /v1/embeddings and vLLM's /pooling, for texts, and for conversations with pictures. */
import type { Context, Handler } from "hono";

import { epochMs } from "../../../engine/index.ts";
import type { AppDependencies } from "../../app-dependencies.ts";
import {
  chatEmbeddingKind,
  chatPoolingKind,
  embeddingKind,
  isConversation,
  poolingKind,
} from "../../generation/embeddings/embedding-kinds.ts";
import { readJsonObject } from "../../http/json-body.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import { generationAnswer } from "../generation-route.ts";

export function embeddingsRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return bodyRoute(dependencies, embeddingAnswer(dependencies));
}

export function poolingRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return bodyRoute(dependencies, poolingAnswer(dependencies));
}

/** Answers a body that has been read, from `startMs` on (since the epoch). */
type BodyAnswer = (c: Context<AppEnvironment>, body: object, startMs: number) => Promise<Response>;

function bodyRoute({ service, bodies, config }: AppDependencies, answer: BodyAnswer): Handler<AppEnvironment> {
  return async (c) => {
    service.checkRoom();
    const startMs = epochMs();
    return answer(c, await readJsonObject(c.req.raw, config.maxBodyBytes, bodies), startMs);
  };
}

export function embeddingAnswer(dependencies: AppDependencies): BodyAnswer {
  const answerTexts = generationAnswer(embeddingKind, dependencies);
  const answerConversation = generationAnswer(chatEmbeddingKind, dependencies);
  return async (c, body, startMs) => (isConversation(body) ? answerConversation : answerTexts)(c, body, startMs);
}

export function poolingAnswer(dependencies: AppDependencies): BodyAnswer {
  const answerTexts = generationAnswer(poolingKind, dependencies);
  const answerConversation = generationAnswer(chatPoolingKind, dependencies);
  return async (c, body, startMs) => (isConversation(body) ? answerConversation : answerTexts)(c, body, startMs);
}
