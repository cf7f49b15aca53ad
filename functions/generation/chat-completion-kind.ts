/** Chat completions: fields, request and answer, for HTTP and batch lines. */
import { toChatChunks, toChatCompletion } from "./chat-answer.ts";
import type { GenerationKind } from "./generation-kind.ts";
import { parseGenerations } from "./parsed-output/parse-generations.ts";
import { chatCompletionRequest } from "./schemas/chat-completion-request.ts";
import type { ChatCompletionRequest } from "./schemas/chat-completion-request.ts";
import { unservedInChat } from "./schemas/unserved-fields.ts";
import { chatParsing, chatRequestPaths, toChatRequest, tokenOptions } from "./to-engine-request.ts";

export const chatCompletionKind: GenerationKind<ChatCompletionRequest> = {
  idPrefix: "chatcmpl-",
  schema: chatCompletionRequest,
  unservedFields: unservedInChat,
  toRequests: (requestId, fields, defaults) => [toChatRequest(requestId, fields, defaults)],
  paths: chatRequestPaths,
  toAnswer: (head, generations, fields, formats) =>
    toChatCompletion(head, parseGenerations(generations, chatParsing(fields, formats)), tokenOptions(fields)),
  toChunks: (head, generations, usage, fields, formats) =>
    toChatChunks(head, parseGenerations(generations, chatParsing(fields, formats)), usage, tokenOptions(fields)),
};
