/**
 * POST /invocations: the one route that SageMaker forwards requests to. As in vLLM, a body with `messages` is a chat
 * completion, and a body with only a `prompt` is a text completion. A service that pools answers with scores or
 * embeddings.
 */
import type { Handler } from "hono";

import type { AppDependencies } from "../../app-dependencies.ts";
import { chatCompletionKind } from "../../generation/chat-completion-kind.ts";
import { completionFormOf } from "../../generation/completion-form.ts";
import { completionKind } from "../../generation/completion-kind.ts";
import { hasScoreSides } from "../../generation/scores/score-kinds.ts";
import { HttpError } from "../../http/errors.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import { bodyRoute, generationAnswer } from "../generation-route.ts";
import type { BodyAnswer } from "../generation-route.ts";
import { embeddingAnswer, poolingAnswer } from "./embeddings.ts";
import { rerankAnswer, scoreAnswer } from "./scores.ts";

export function invocationsRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return bodyRoute(dependencies, completionAnswer(dependencies));
}

export function completionAnswer(dependencies: AppDependencies): BodyAnswer {
  if (dependencies.config.engine.runner === "pooling") return answerOfPooling(dependencies);
  const answerChat = generationAnswer(chatCompletionKind, dependencies);
  const answerCompletion = generationAnswer(completionKind, dependencies);
  return async (c, body, startMs) => {
    switch (completionFormOf(body)) {
      case "chat":
        return answerChat(c, body, startMs);
      case "text":
        return answerCompletion(c, body, startMs);
      case null:
        throw new HttpError(
          400,
          "invalid_value",
          "The body must have messages (a chat completion) or prompt (a text completion).",
        );
    }
  };
}

function answerOfPooling(dependencies: AppDependencies): BodyAnswer {
  const answerEmbeddings = embeddingAnswer(dependencies);
  const answerTokens = poolingAnswer(dependencies);
  const answerScores = scoreAnswer(dependencies);
  const answerRerank = rerankAnswer(dependencies);
  return async (c, body, startMs) => {
    if ("query" in body) return answerRerank(c, body, startMs);
    if (hasScoreSides(body)) return answerScores(c, body, startMs);
    const ofTokens = dependencies.service.engine?.modelInfo?.task === "token_embed";
    return (ofTokens ? answerTokens : answerEmbeddings)(c, body, startMs);
  };
}
