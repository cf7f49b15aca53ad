/** Converts the fields of POST /v1/responses to those of a chat completion, so that both take one way to the engine. */
import type { RequestPaths } from "../../http/wire-parameter.ts";
import { contentField } from "../content-parts.ts";
import { withOneSystemMessage } from "../conversation-turns.ts";
import { argumentsOfCustomCall } from "../custom-tools.ts";
import type { ChatCompletionRequest, ChatMessageFields } from "../schemas/chat-completion-request.ts";
import { requiresCall } from "../schemas/tool-fields.ts";
import { decodeThinking } from "./encoded-thinking.ts";
import type { InputItem, ItemContent } from "./input-items.ts";
import { functionsOf, nameForModel, toolsForModel } from "./response-tools.ts";
import type { ResponsesRequest } from "./responses-request.ts";

type AssistantTurn = Extract<ChatMessageFields, { role: "assistant" }>;
type MediaPart = Extract<Exclude<ItemContent, string>[number], { type: "input_image" | "input_video" | "input_file" }>;
type ContentFields = NonNullable<ChatMessageFields["content"]>;

export function responsesToChatFields(fields: ResponsesRequest): ChatCompletionRequest {
  const {
    input,
    instructions,
    text,
    reasoning,
    tools: _tools,
    tool_choice: _choice,
    parallel_tool_calls: isParallel,
    max_output_tokens: maxTokens,
    top_logprobs: numTopLogprobs,
    metadata: _metadata,
    stream_options: _streamOptions,
    ...decoding
  } = fields;
  const { tools, choice } = toolsForModel(fields);
  const withLogprobs = includesLogprobs(fields);
  return {
    ...decoding,
    ...(isContinued(input) && { continue_final_message: true }),
    messages: withOneSystemMessage([
      ...(typeof instructions === "string" ? [{ role: "system" as const, content: instructions }] : []),
      ...(typeof input === "string" ? [{ role: "user" as const, content: input }] : toMessages(input)),
    ]),
    max_tokens: maxTokens,
    logprobs: withLogprobs,
    ...(withLogprobs && { top_logprobs: numTopLogprobs ?? 0 }),
    response_format: formOf(text?.format),
    reasoning_effort: reasoning?.effort,
    ...(tools.length > 0 && { tools: [...tools], tool_choice: choice, parallel_tool_calls: isParallel }),
  };
}

/** As in vLLM, the model continues a text or thinking that was cut off, if it is the last item and not empty. */
function isContinued(input: ResponsesRequest["input"]): boolean {
  const last = typeof input === "string" ? undefined : input.at(-1);
  if (last?.type === "message") return last.role === "assistant" && isCut(last) && toContent(last.content).length > 0;
  return last?.type === "reasoning" && isCut(last) && thinkingOf(last) !== "";
}

function isCut({ status }: { readonly status?: string | null | undefined }): boolean {
  return status === "incomplete" || status === "in_progress";
}

function thinkingOf({
  content,
  summary,
  encrypted_content: encoded,
}: Extract<InputItem, { type: "reasoning" }>): string {
  const parts = content?.length ? content : summary;
  const decoded = content?.length ? null : decodeThinking(encoded ?? "");
  return decoded ?? (parts ?? []).map(({ text }) => text).join("\n");
}

/** The answer has logprobs if they are included by name, as with OpenAI, or if alternatives are asked for. */
function includesLogprobs({ include, top_logprobs: numTopLogprobs }: ResponsesRequest): boolean {
  return (include ?? []).includes("message.output_text.logprobs") || (numTopLogprobs ?? 0) > 0;
}

/** Paths of the request's prompt, images, videos and documents, for errors. */
export function responsesRequestPaths(fields: ResponsesRequest): RequestPaths {
  const { input, structured_outputs: structured } = fields;
  const items = typeof input === "string" ? [] : input;
  const pathsOf = (type: MediaPart["type"]): string[] =>
    items.flatMap((item, index) => {
      const [field, content] = contentOf(item);
      if (typeof content === "string") return [];
      return content.flatMap((part, at) =>
        part.type === type ? [`input[${index}].${field}[${at}].${contentField(part)}`] : [],
      );
    });
  return {
    prompt: "input",
    images: pathsOf("input_image"),
    videos: pathsOf("input_video"),
    documents: pathsOf("input_file"),
    structuredOutput:
      isFormed(fields) && !requiresCall(toolsForModel(fields).choice)
        ? structured
          ? "structured_outputs"
          : "text.format"
        : "tools",
    names: { maxTokens: "max_output_tokens" },
    rename: (text) =>
      text.replace(/\btools\[(\d+)\]\.function\.(\w+)/g, (_, index: string, field: string) => {
        const name = toolsForModel(fields).tools[Number(index)]?.name;
        const path = functionsOf(fields).find(({ tool }) => tool.name === name)?.path ?? `tools[${index}]`;
        return `${path}.${field}`;
      }),
  };
}

/** Whether a field other than the tools prescribes the form of the text. */
function isFormed({ text, structured_outputs: structured }: ResponsesRequest): boolean {
  return Boolean(structured) || (text?.format?.type ?? "text") !== "text";
}

function contentOf(item: InputItem): [field: string, content: ItemContent] {
  switch (item.type) {
    case "message":
      return ["content", item.content];
    case "function_call_output":
    case "custom_tool_call_output":
      return ["output", item.output];
    case "function_call":
    case "custom_tool_call":
    case "reasoning":
    case "additional_tools":
      return ["", ""];
  }
}

function formOf(
  format: NonNullable<ResponsesRequest["text"]>["format"] | undefined,
): ChatCompletionRequest["response_format"] {
  switch (format?.type) {
    case undefined:
    case "text":
      return null;
    case "json_object":
      return { kind: "json-object" };
    case "json_schema":
      return { kind: "json-schema", schema: JSON.stringify(format.schema) };
  }
}

/** Adjacent thinking, text and calls of the assistant, in this order, are one turn. */
function toMessages(items: readonly InputItem[]): ChatMessageFields[] {
  const messages: ChatMessageFields[] = [];
  /** The last message if it may continue, otherwise a new one. */
  const turnThat = (mayContinue: (turn: AssistantTurn) => boolean): AssistantTurn => {
    const last = messages.at(-1);
    if (last?.role === "assistant" && mayContinue(last)) return last;
    const turn: AssistantTurn = { role: "assistant" };
    messages.push(turn);
    return turn;
  };
  for (const item of items) {
    switch (item.type) {
      case "message": {
        const { role } = item;
        const content = toContent(item.content);
        if (role === "assistant") turnThat((turn) => !turn.content && !turn.tool_calls).content = content;
        else messages.push({ role, content });
        break;
      }
      case "reasoning": {
        const thinking = thinkingOf(item);
        if (thinking !== "") turnThat(() => false).reasoning_content = thinking;
        break;
      }
      case "function_call":
      case "custom_tool_call": {
        const { call_id: id, namespace } = item;
        const given = item.type === "function_call" ? item.arguments : argumentsOfCustomCall(item.input);
        const name = nameForModel(item.name, namespace);
        (turnThat(() => true).tool_calls ??= []).push({ id, function: { name, arguments: given } });
        break;
      }
      case "additional_tools":
        // The model sees them with the others, before the conversation.
        break;
      case "function_call_output":
      case "custom_tool_call_output":
        messages.push({ role: "tool", tool_call_id: item.call_id, content: toContent(item.output) });
        break;
    }
  }
  return messages;
}

/** A single text, as answers have it, is a string, which every chat template accepts. */
function toContent(content: ItemContent): ContentFields {
  if (typeof content === "string") return content;
  const [only, ...others] = content;
  return only !== undefined && "text" in only && others.length === 0 ? only.text : content.map(toPart);
}

function toPart(part: Exclude<ItemContent, string>[number]): Exclude<ContentFields, string>[number] {
  if (part.type !== "text") return part;
  return { type: "text", text: part.text };
}
