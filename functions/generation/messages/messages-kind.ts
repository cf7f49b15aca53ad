/** Anthropic's messages: fields, request and answer. */
import { toAnthropicError } from "../../http/anthropic-error.ts";
import type { EventFormat } from "../../http/sse.ts";
import type { GenerationKind, PromptKind } from "../generation-kind.ts";
import { parsedAsText } from "../parsed-output/parsed-as-text.ts";
import { unservedInMessages } from "../schemas/unserved-fields.ts";
import { toChatRequest } from "../to-engine-request.ts";
import { toMessage, toMessageEvents } from "./messages-answer.ts";
import { countTokensRequest, hostedTypesOf, messagesRequest } from "./messages-request.ts";
import type { CountTokensRequest, MessagesRequest } from "./messages-request.ts";
import { messagesRequestPaths, messagesToChatFields, promptToChatFields } from "./to-chat-fields.ts";

const eventFormat: EventFormat = {
  isNamed: true,
  toErrorEvent: toAnthropicError,
  keepAlive: { type: "ping" },
  end: null,
};

export const messagesKind: GenerationKind<MessagesRequest> = {
  idPrefix: "msg_",
  schema: messagesRequest,
  unservedFields: unservedInMessages,
  toRequests: (requestId, fields, defaults) => [toChatRequest(requestId, messagesToChatFields(fields), defaults)],
  paths: messagesRequestPaths,
  toAnswer: (head, generations) => toMessage(head, parsedAsText(generations)),
  toChunks: (head, generations) => toMessageEvents(head, parsedAsText(generations)),
  eventFormat,
  warnings(fields) {
    const types = hostedTypesOf(fields);
    if (types.length === 0) return [];
    return [`The service has no tools of its own; the model does not see these tools: ${types.join(", ")}.`];
  },
};

/** A prompt of which only the tokens are counted. */
export const countedPromptKind: PromptKind<CountTokensRequest> = {
  idPrefix: "count_",
  schema: countTokensRequest,
  unservedFields: unservedInMessages,
  toRequests: (requestId, fields, defaults) => [toChatRequest(requestId, promptToChatFields(fields), defaults)],
  paths: messagesRequestPaths,
};
