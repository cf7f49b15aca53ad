/** Text completions: fields, request and answer, for HTTP and batch lines. */
import { toCompletion, toCompletionChunks } from "./completion-answer.ts";
import type { GenerationKind } from "./generation-kind.ts";
import { completionRequest } from "./schemas/completion-request.ts";
import type { CompletionRequest } from "./schemas/completion-request.ts";
import { unservedInCompletions } from "./schemas/unserved-fields.ts";
import { completionRequestPaths, echoOptions, toCompletionRequests } from "./to-completion-requests.ts";

export const completionKind: GenerationKind<CompletionRequest> = {
  idPrefix: "cmpl-",
  schema: completionRequest,
  unservedFields: unservedInCompletions,
  toRequests: toCompletionRequests,
  paths: completionRequestPaths,
  toAnswer: (head, generations, fields) => toCompletion(head, generations, echoOptions(fields)),
  toChunks: (head, generations, usage, fields) => toCompletionChunks(head, generations, usage, echoOptions(fields)),
};
