/** Converts the AI SDK's prompt to the engine's conversation. */
import { UnsupportedFunctionalityError } from "@ai-sdk/provider";
import type {
  LanguageModelV4FilePart,
  LanguageModelV4Message,
  LanguageModelV4Prompt,
  LanguageModelV4ToolResultPart,
} from "@ai-sdk/provider";

import type { ChatMessage, ContentPart, JsonObject, ToolCall } from "../../engine/index.ts";

type MessagePart = Exclude<LanguageModelV4Message["content"], string>[number];

type ToolMessage = Extract<LanguageModelV4Message, { role: "tool" }>;

/** Throws UnsupportedFunctionalityError for approvals of tools and for files that are neither pictures nor videos nor PDFs. */
export function toChatMessages(prompt: LanguageModelV4Prompt): ChatMessage[] {
  return prompt.flatMap((message): ChatMessage[] => {
    const { role, content } = message;
    if (role === "tool") return content.map(toResultMessage);
    if (typeof content === "string") return [{ role, content }];
    const parts: readonly MessagePart[] = content;
    const toolCalls = parts.flatMap(toToolCalls);
    const reasoning = parts.flatMap((part) => (part.type === "reasoning" ? [part.text] : [])).join("\n");
    return [
      {
        role,
        content: role === "assistant" ? joinedTexts(parts.flatMap(toContentParts)) : parts.flatMap(toContentParts),
        ...(toolCalls.length > 0 && { toolCalls }),
        ...(reasoning !== "" && { reasoning }),
      },
    ];
  });
}

/** Texts without pictures are one string, which every chat template accepts. */
function joinedTexts(parts: readonly ContentPart[]): ChatMessage["content"] {
  return parts.every((part) => part.type === "text") ? parts.map(({ text }) => text).join("") : parts;
}

function toToolCalls(part: MessagePart): ToolCall[] {
  if (part.type !== "tool-call") return [];
  const { toolCallId: id, toolName: name, input } = part;
  const isObject = typeof input === "object" && input !== null && !Array.isArray(input);
  return [{ id, name, arguments: isObject ? (input as JsonObject) : {} }];
}

function toResultMessage(part: ToolMessage["content"][number]): ChatMessage {
  if (part.type !== "tool-result") {
    throw new UnsupportedFunctionalityError({ functionality: `parts of the type ${part.type}` });
  }
  return { role: "tool", content: toResultContent(part.output), toolCallId: part.toolCallId, name: part.toolName };
}

function toResultContent(output: LanguageModelV4ToolResultPart["output"]): ChatMessage["content"] {
  switch (output.type) {
    case "text":
    case "error-text":
      return output.value;
    case "json":
    case "error-json":
      return JSON.stringify(output.value);
    case "execution-denied":
      return output.reason ?? "The user denied the call.";
    case "content":
      return output.value.map((part): ContentPart => {
        if (part.type === "text") return { type: "text", text: part.text };
        if (part.type === "file") return toMediaPart(part);
        throw new UnsupportedFunctionalityError({ functionality: `results with parts of the type ${part.type}` });
      });
    default:
      return output satisfies never;
  }
}

function toContentParts(part: MessagePart): ContentPart[] {
  switch (part.type) {
    case "text":
      return [{ type: "text", text: part.text }];
    case "file":
      return [toMediaPart(part)];
    // Fields of their own in the message.
    case "reasoning":
    case "tool-call":
      return [];
    case "custom":
    case "reasoning-file":
    case "tool-result":
    case "tool-approval-response":
      throw new UnsupportedFunctionalityError({ functionality: `parts of the type ${part.type}` });
    default:
      return part satisfies never;
  }
}

function toMediaPart({ data, mediaType }: Pick<LanguageModelV4FilePart, "data" | "mediaType">): ContentPart {
  if (mediaType === "application/pdf") return { type: "document", reference: referenceOf(data, mediaType) };
  const [type] = mediaType.split("/");
  if (type !== "image" && type !== "video") {
    throw new UnsupportedFunctionalityError({ functionality: `files of the type ${mediaType}` });
  }
  return { type, reference: referenceOf(data, mediaType) };
}

function referenceOf(data: LanguageModelV4FilePart["data"], mediaType: string): string {
  switch (data.type) {
    case "data":
      return `data:${mediaType};base64,${toBase64(data.data)}`;
    case "url":
      return data.originalUrl ?? data.url.href;
    case "reference":
    case "text":
      throw new UnsupportedFunctionalityError({ functionality: `files given as ${data.type}` });
    default:
      return data satisfies never;
  }
}

function toBase64(bytes: Uint8Array | string): string {
  if (typeof bytes === "string") return bytes;
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64");
}
