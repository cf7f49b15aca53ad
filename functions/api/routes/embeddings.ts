/** POST /v1/embeddings and vLLM's /pooling, for texts, and for conversations with pictures. */
import type { Handler } from "hono";

import type { AppDependencies } from "../../app-dependencies.ts";
import {
  chatEmbeddingKind,
  chatPoolingKind,
  embeddingKind,
  isConversation,
  poolingKind,
} from "../../generation/embeddings/embedding-kinds.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import { bodyRoute, generationAnswer } from "../generation-route.ts";
import type { BodyAnswer } from "../generation-route.ts";

export function embeddingsRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return bodyRoute(dependencies, embeddingAnswer(dependencies));
}

export function poolingRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return bodyRoute(dependencies, poolingAnswer(dependencies));
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
