/**
 * POST /invocations: the one route that SageMaker forwards requests to. As in vLLM, a body with `messages` is a chat
 * completion, and a body with only a `prompt` is a text completion. A service that pools answers with scores or
 * embeddings.
 */
import type { Context, Handler } from "hono";

import { epochMs } from "../../../engine/index.ts";
import type { AppDependencies } from "../../app-dependencies.ts";
import { chatCompletionKind } from "../../generation/chat-completion-kind.ts";
import { completionFormOf } from "../../generation/completion-form.ts";
import { completionKind } from "../../generation/completion-kind.ts";
import { hasScoreSides } from "../../generation/scores/score-kinds.ts";
import { HttpError } from "../../http/errors.ts";
import { readJsonObject } from "../../http/json-body.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import { generationAnswer } from "../generation-route.ts";
import { embeddingAnswer, poolingAnswer } from "./embeddings.ts";
import { rerankAnswer, scoreAnswer } from "./scores.ts";

export function invocationsRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  const { service, bodies, config } = dependencies;
  const answer = completionAnswer(dependencies);
  return async (c) => {
    service.checkRoom();
    const startMs = epochMs();
    return answer(c, await readJsonObject(c.req.raw, config.maxBodyBytes, bodies), startMs);
  };
}

/** Answers a body of either kind that has been read, from `startMs` on (since the epoch). */
export function completionAnswer(
  dependencies: AppDependencies,
): (c: Context<AppEnvironment>, body: object, startMs: number) => Promise<Response> {
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

function answerOfPooling(dependencies: AppDependencies): ReturnType<typeof completionAnswer> {
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
