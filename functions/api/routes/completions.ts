/** POST /v1/completions. */
import type { Handler } from "hono";

import type { AppDependencies } from "../app-dependencies.ts";
import { toCompletion, toCompletionChunks } from "../completion-answer.ts";
import type { GenerationKind } from "../generation-kind.ts";
import { generationRoute } from "../generation-route.ts";
import type { AppEnvironment } from "../request-trace.ts";
import { completionRequest } from "../schemas/completion-request.ts";
import type { CompletionRequest } from "../schemas/completion-request.ts";
import { unservedInCompletions } from "../schemas/unserved-fields.ts";
import { completionRequestPaths, echoOptions, toCompletionRequests } from "../to-engine-request.ts";

export const completionKind: GenerationKind<CompletionRequest> = {
  idPrefix: "cmpl",
  schema: completionRequest,
  unservedFields: unservedInCompletions,
  toRequests: toCompletionRequests,
  paths: completionRequestPaths,
  toAnswer: (head, generations, fields) => toCompletion(head, generations, echoOptions(fields)),
  toChunks: (head, generations, usage, fields) => toCompletionChunks(head, generations, usage, echoOptions(fields)),
};

export function completionsRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return generationRoute(completionKind, dependencies);
}
