/** Converts the fields of POST /v1/messages to those of a chat completion, so that both take one way to the engine. */
import { formatPath } from "../../http/wire-parameter.ts";
import type { RequestPaths } from "../../http/wire-parameter.ts";
import { withCombinedTurns, withOneSystemMessage } from "../conversation-turns.ts";
import { fileReference } from "../references.ts";
import type { ChatCompletionRequest, ChatMessageFields } from "../schemas/chat-completion-request.ts";
import { requiresCall } from "../schemas/tool-fields.ts";
import type { Block, ImageSource, MessageFields } from "./message-blocks.ts";
import { visibleToolsOf } from "./message-tools.ts";
import { toolChoiceOf } from "./messages-request.ts";
import type { CountTokensRequest, MessagesRequest } from "./messages-request.ts";

type AssistantTurn = Extract<ChatMessageFields, { role: "assistant" }>;
type PartFields = Exclude<NonNullable<ChatMessageFields["content"]>, string>[number];
type ShownBlock = Extract<Block, { type: "text" | "image" | "document" | "search_result" }>;
type TextBlock = Extract<Block, { type: "text" }>;
type ResultBlock = Exclude<NonNullable<Extract<Block, { type: "tool_result" }>["content"]>, string>[number];

export function messagesToChatFields(fields: MessagesRequest): ChatCompletionRequest {
  const {
    messages: _messages,
    system: _system,
    tools: _tools,
    tool_choice: _choice,
    thinking: _thinking,
    output_config: _config,
    output_format: _format,
    stop_sequences: stop,
    ...decoding
  } = fields;
  return { ...decoding, ...promptToChatFields(fields), stop };
}

/** The fields that determine the prompt. */
export function promptToChatFields(fields: CountTokensRequest): ChatCompletionRequest {
  const { model, cache_salt, mm_processor_kwargs, tool_choice: choice, output_config: config } = fields;
  const tools = visibleToolsOf(fields).map(({ tool }) => tool);
  const isSingle = choice && "disable_parallel_tool_use" in choice && choice.disable_parallel_tool_use === true;
  const format = config?.format ?? fields.output_format;
  const system = withoutBillingNote(fields.system ?? "");
  const turns = withoutEmptyEnd(withoutClearedNotes(fields.messages));
  const conversation = [
    ...(system.length > 0 ? [{ role: "system" as const, content: toContent(system) }] : []),
    ...turns.flatMap(toMessages),
  ];
  // Every message only changed the tools.
  if (conversation.length === 0) conversation.push({ role: "user", content: "" });
  return {
    model,
    cache_salt,
    mm_processor_kwargs,
    // As at Anthropic, adjacent turns of one role are one turn.
    messages: withCombinedTurns(withOneSystemMessage(conversation)),
    ...(isContinued(turns.at(-1)) && { continue_final_message: true }),
    ...(tools.length > 0 && { tools, tool_choice: toolChoiceOf(fields), parallel_tool_calls: isSingle ? false : null }),
    ...(format && { response_format: { kind: "json-schema" as const, schema: JSON.stringify(format.schema) } }),
    ...thinkingFields(fields),
  };
}

/** As at Anthropic, the model does not see such a system message once the user has said something after it. */
function withoutClearedNotes(messages: readonly MessageFields[]): readonly MessageFields[] {
  const lastOfUser = messages.findLastIndex(({ role }) => role === "user");
  return messages.filter(
    ({ role, clear_at: end }, index) => role !== "system" || end !== "next_user_message" || index > lastOfUser,
  );
}

/** As at Anthropic, an empty last turn of the assistant begins nothing. */
function withoutEmptyEnd(messages: readonly MessageFields[]): readonly MessageFields[] {
  const last = messages.at(-1);
  if (messages.length === 1 || last?.role !== "assistant") return messages;
  const blocks = typeof last.content === "string" ? [{ type: "text" as const, text: last.content }] : last.content;
  const isEmpty = blocks.every(
    (block) =>
      block.type === "redacted_thinking" ||
      (block.type === "text" && block.text.trim() === "") ||
      (block.type === "thinking" && block.thinking.trim() === ""),
  );
  return isEmpty ? messages.slice(0, -1) : messages;
}

/** The model continues the text or thinking of the assistant's last turn. A turn that ends with a call is complete. */
function isContinued(last: MessageFields | undefined): boolean {
  if (last?.role !== "assistant") return false;
  return typeof last.content === "string" || !last.content.some(({ type }) => type === "tool_use");
}

/** Without `thinking`, the model's own default applies. */
function thinkingFields({
  thinking,
  output_config: config,
  chat_template_kwargs: given,
}: CountTokensRequest): Partial<ChatCompletionRequest> {
  const effort = config?.effort ? { reasoning_effort: config.effort } : {};
  if (!thinking) return { ...effort, chat_template_kwargs: given };
  const isOn = thinking.type !== "disabled";
  const isHidden = "display" in thinking && thinking.display === "omitted";
  return {
    ...effort,
    chat_template_kwargs: { enable_thinking: isOn, ...given },
    ...(isHidden && { include_reasoning: false }),
    ...(thinking.type === "enabled" && { thinking_token_budget: thinking.budget_tokens }),
  };
}

/** Paths of the request's prompt, images and documents, for errors. */
export function messagesRequestPaths(fields: CountTokensRequest): RequestPaths {
  const { messages, output_config: config, output_format: format } = fields;
  const formatField = config?.format ? "output_config.format" : format ? "output_format" : null;
  const pathsOf = (isMeant: (block: ResultBlock | Block) => boolean): string[] =>
    messages.flatMap(({ content }, message) =>
      typeof content === "string"
        ? []
        : content.flatMap((block, index) => {
            const path = `messages[${message}].content[${index}]`;
            if (isMeant(block)) return [`${path}.source`];
            if (block.type !== "tool_result" || typeof block.content !== "object" || block.content === null) return [];
            return block.content.flatMap((inner, part) => (isMeant(inner) ? [`${path}.content[${part}].source`] : []));
          }),
    );
  return {
    prompt: "messages",
    images: pathsOf(({ type }) => type === "image"),
    videos: [],
    documents: pathsOf((block) => block.type === "document" && isFile(block.source)),
    structuredOutput: formatField !== null && !requiresCall(toolChoiceOf(fields)) ? formatField : "tools",
    names: { stop: "stop_sequences" },
    rename: (text) =>
      text.replace(/\btools\[(\d+)\]\.function\.(\w+)/g, (_, index: string, field: string) => {
        const path = visibleToolsOf(fields)[Number(index)]?.path ?? ["tools", Number(index)];
        return `${formatPath(path)}.${field === "parameters" ? "input_schema" : field}`;
      }),
  };
}

/**
 * Claude Code's note for Anthropic, at the start of its system prompt. It is another one in every request, so no prompt
 * that contains it could reuse another's keys and values.
 */
const billingNote = /^x-anthropic-billing-header:[^\n]*\n*/;

function withoutBillingNote(content: string | readonly TextBlock[]): string | readonly TextBlock[] {
  if (typeof content === "string") return content.replace(billingNote, "");
  return content.flatMap((block) => {
    if (!billingNote.test(block.text)) return [block];
    const text = block.text.replace(billingNote, "");
    return text === "" ? [] : [{ ...block, text }];
  });
}

/** Results of tools are turns of their own; what else a user's turn has stays in order around them. */
function toMessages({ role, content }: MessageFields): ChatMessageFields[] {
  if (role === "assistant") return [toAssistantTurn(content)];
  if (role === "system") {
    const texts = typeof content === "string" ? content : content.filter((block) => block.type === "text");
    // One that only changes the tools has no text.
    return texts.length === 0 ? [] : [{ role, content: toContent(withoutBillingNote(texts)) }];
  }
  if (typeof content === "string") return [{ role, content }];
  const messages: ChatMessageFields[] = [];
  let parts: ShownBlock[] = [];
  const flush = (): void => {
    if (parts.length > 0) messages.push({ role, content: toContent(parts) });
    parts = [];
  };
  for (const block of content) {
    if (isShown(block)) parts.push(block);
    if (block.type !== "tool_result") continue;
    flush();
    messages.push({ role: "tool", tool_call_id: block.tool_use_id, content: toContent(block.content ?? "") });
  }
  flush();
  return messages.length > 0 ? messages : [{ role, content: "" }];
}

function isShown(block: Block): block is ShownBlock {
  return ["text", "image", "document", "search_result"].includes(block.type);
}

function toAssistantTurn(content: MessageFields["content"]): AssistantTurn {
  if (typeof content === "string") return { role: "assistant", content };
  const texts = content.flatMap((block) => (block.type === "text" ? [block.text] : []));
  const thinking = content.flatMap((block) => (block.type === "thinking" ? [block.thinking] : []));
  const calls = content.flatMap((block) =>
    block.type === "tool_use" ? [{ id: block.id, function: { name: block.name, arguments: block.input } }] : [],
  );
  return {
    role: "assistant",
    ...(texts.length > 0 && { content: texts.join("") }),
    ...(thinking.length > 0 && { reasoning_content: thinking.join("\n") }),
    ...(calls.length > 0 && { tool_calls: calls }),
  };
}

/** A single text is a string, which every chat template accepts. */
function toContent(content: string | readonly ResultBlock[]): string | PartFields[] {
  if (typeof content === "string") return content;
  const parts = content.flatMap(toParts);
  const [only] = parts;
  return parts.length === 1 && only?.type === "text" ? only.text : parts;
}

function toParts(block: ResultBlock): PartFields[] {
  switch (block.type) {
    case "text":
      return [{ type: "text", text: block.text }];
    case "image":
      return [{ type: "image_url", image_url: { url: referenceOf(block.source) } }];
    case "document":
      return documentParts(block);
    case "search_result":
      return [{ type: "text", text: searchResultText(block) }];
    case "tool_reference":
      // The definition is among the tools of the prompt.
      return [{ type: "text", text: `Loaded the tool ${block.tool_name}.` }];
  }
}

type DocumentBlock = Extract<Block, { type: "document" }>;
type FileSource = Extract<DocumentBlock["source"], { type: "base64" | "url" | "file" }>;

/** A PDF, by its content, its address or its id. */
function isFile(source: DocumentBlock["source"]): source is FileSource {
  return source.type !== "text" && source.type !== "content";
}

/** Text in the tags that Anthropic recommends for documents in a prompt; or a file, behind what is told about it. */
function documentParts({ source, title, context }: DocumentBlock): PartFields[] {
  const about = [...(title ? [tagged("title", [title])] : []), ...(context ? [tagged("context", [context])] : [])];
  if (isFile(source)) {
    const file = { type: "document_url", document_url: { url: referenceOf(source) } } as const;
    return about.length === 0 ? [file] : [{ type: "text", text: tagged("document", about) }, file];
  }
  const content = tagged("document_content", [source.type === "text" ? source.data : textOf(source.content)]);
  return [{ type: "text", text: tagged("document", [...about, content]) }];
}

function searchResultText({ source, title, content }: Extract<Block, { type: "search_result" }>): string {
  return tagged("search_result", [
    tagged("source", [source]),
    tagged("title", [title]),
    tagged("content", [textOf(content)]),
  ]);
}

function tagged(tag: string, lines: readonly string[]): string {
  return `<${tag}>\n${lines.join("\n")}\n</${tag}>`;
}

function textOf(content: string | readonly TextBlock[]): string {
  return typeof content === "string" ? content : content.map(({ text }) => text).join("\n");
}

function referenceOf(source: ImageSource | FileSource): string {
  switch (source.type) {
    case "base64":
      return `data:${source.media_type};base64,${source.data}`;
    case "url":
      return source.url;
    case "file":
      return fileReference(source.file_id);
  }
}
