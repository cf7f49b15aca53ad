/** Anthropic's messages: fields, request and answer. */
import { toAnthropicError } from "../../http/anthropic-error.ts";
import type { EventFormat } from "../../http/sse.ts";
import type { GenerationKind, PromptKind } from "../generation-kind.ts";
import { withoutTokens } from "../generations.ts";
import type { Generation } from "../generations.ts";
import type { ModelFormats } from "../parsed-output/model-formats.ts";
import { parseGenerations } from "../parsed-output/parse-generations.ts";
import type { ParsedGeneration } from "../parsed-output/parsed-delta.ts";
import type { ChatCompletionRequest } from "../schemas/chat-completion-request.ts";
import { unservedInMessages } from "../schemas/unserved-fields.ts";
import { chatParsing, toChatRequest } from "../to-chat-request.ts";
import { asksForCitations } from "./message-blocks.ts";
import { hostedTypesOf } from "./message-tools.ts";
import { toMessage, toMessageEvents } from "./messages-answer.ts";
import { countTokensRequest, messagesRequest } from "./messages-request.ts";
import type { CountTokensRequest, MessagesRequest } from "./messages-request.ts";
import { messagesRequestPaths, messagesToChatFields, promptToChatFields } from "./to-chat-fields.ts";

const eventFormat: EventFormat = {
  isNamed: true,
  toErrorEvent: toAnthropicError,
  keepAlive: { type: "ping" },
  end: null,
};

function parsed(
  generations: AsyncIterable<Generation>,
  fields: MessagesRequest,
  formats: ModelFormats,
): AsyncGenerator<ParsedGeneration> {
  const shown = isOnlyPrompt(fields) ? withoutTokens(generations) : generations;
  return parseGenerations(shown, chatParsing(messagesToChatFields(fields), formats));
}

/** As at Anthropic, such a message puts its prompt into the cache for those that follow. */
function isOnlyPrompt({ max_tokens: maxTokens }: MessagesRequest): boolean {
  return maxTokens === 0;
}

function toEngineFields(fields: MessagesRequest): ChatCompletionRequest {
  const chat = messagesToChatFields(fields);
  return isOnlyPrompt(fields) ? { ...chat, max_tokens: 1 } : chat;
}

export const messagesKind: GenerationKind<MessagesRequest> = {
  idPrefix: "msg_",
  schema: messagesRequest,
  unservedFields: unservedInMessages,
  toRequests: (requestId, fields, defaults) => [
    toChatRequest(requestId, withoutVainBudget(toEngineFields(fields), defaults.formats), defaults),
  ],
  paths: messagesRequestPaths,
  toAnswer: (head, generations, fields, formats) =>
    toMessage(head, parsed(generations, fields, formats), isOnlyPrompt(fields)),
  toChunks: (head, generations, _usage, fields, formats) =>
    toMessageEvents(head, parsed(generations, fields, formats), isOnlyPrompt(fields)),
  eventFormat,
  warnings(fields, formats) {
    const types = hostedTypesOf(fields);
    const isVain = formats.reasoning === null && fields.thinking?.type === "enabled";
    return [
      ...(types.length > 0
        ? [`The service has no tools of its own; the model does not see these tools: ${types.join(", ")}.`]
        : []),
      ...(asksForCitations(fields) ? ["The service makes no citations; the answer has none."] : []),
      ...(isVain ? ["This model does not mark its thinking, so thinking has no effect."] : []),
    ];
  },
};

/** Clients of Anthropic's models ask every model to think. */
function withoutVainBudget(fields: ChatCompletionRequest, { reasoning }: ModelFormats): ChatCompletionRequest {
  return reasoning === null ? { ...fields, thinking_token_budget: null } : fields;
}

/** A prompt of which only the tokens are counted. */
export const countedPromptKind: PromptKind<CountTokensRequest> = {
  idPrefix: "count_",
  schema: countTokensRequest,
  unservedFields: unservedInMessages,
  toRequests: (requestId, fields, defaults) => [
    toChatRequest(requestId, withoutVainBudget(promptToChatFields(fields), defaults.formats), defaults),
  ],
  paths: messagesRequestPaths,
};
