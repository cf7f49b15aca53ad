/** Chat completions: fields, request and answer, for HTTP and batch lines. */
import { toChatChunks, toChatCompletion } from "./chat-answer.ts";
import type { GenerationKind } from "./generation-kind.ts";
import { chatCompletionRequest } from "./schemas/chat-completion-request.ts";
import type { ChatCompletionRequest } from "./schemas/chat-completion-request.ts";
import { unservedInChat } from "./schemas/unserved-fields.ts";
import { chatRequestPaths, toChatRequest } from "./to-engine-request.ts";

export const chatCompletionKind: GenerationKind<ChatCompletionRequest> = {
  idPrefix: "chatcmpl-",
  schema: chatCompletionRequest,
  unservedFields: unservedInChat,
  toRequests: (requestId, fields, defaults) => [toChatRequest(requestId, fields, defaults)],
  paths: chatRequestPaths,
  toAnswer: toChatCompletion,
  toChunks: toChatChunks,
};
