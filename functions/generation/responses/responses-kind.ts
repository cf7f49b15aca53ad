/** Responses: fields, request and answer. */
import type { EventFormat } from "../../http/sse.ts";
import type { GenerationKind } from "../generation-kind.ts";
import type { Generation } from "../generations.ts";
import type { ModelFormats } from "../parsed-output/model-formats.ts";
import { parseGenerations } from "../parsed-output/parse-generations.ts";
import type { ParsedGeneration } from "../parsed-output/parsed-delta.ts";
import { unservedInResponses } from "../schemas/unserved-fields.ts";
import { chatParsing, toChatRequest } from "../to-chat-request.ts";
import { hostedTypesOf } from "./response-tools.ts";
import { toResponse, toResponseEvents } from "./responses-answer.ts";
import { responsesRequest } from "./responses-request.ts";
import type { ResponsesRequest } from "./responses-request.ts";
import { responsesRequestPaths, responsesToChatFields } from "./to-chat-fields.ts";

/** Only for an error before the first event, which comes after a silence. */
const eventFormat: EventFormat = {
  isNamed: true,
  toErrorEvent: ({ error: { code, message, param } }) => ({ type: "error", code, message, param, sequence_number: 0 }),
  keepAlive: null,
  end: null,
};

function parsed(
  generations: AsyncIterable<Generation>,
  fields: ResponsesRequest,
  formats: ModelFormats,
): AsyncGenerator<ParsedGeneration> {
  return parseGenerations(generations, chatParsing(responsesToChatFields(fields), formats));
}

export const responsesKind: GenerationKind<ResponsesRequest> = {
  idPrefix: "resp_",
  schema: responsesRequest,
  unservedFields: unservedInResponses,
  toRequests: (requestId, fields, defaults) => [toChatRequest(requestId, responsesToChatFields(fields), defaults)],
  paths: responsesRequestPaths,
  toAnswer: (head, generations, fields, model) => toResponse(head, parsed(generations, fields, model), fields, model),
  toChunks: (head, generations, _usage, fields, model, describeError) =>
    toResponseEvents(head, parsed(generations, fields, model), fields, model, describeError),
  eventFormat,
  warnings(fields) {
    const types = hostedTypesOf(fields);
    if (types.length === 0) return [];
    return [`The service runs no tools of its own; the model does not see these tools: ${types.join(", ")}.`];
  },
};
