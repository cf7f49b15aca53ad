/** Converts the AI SDK's prompt to the engine's conversation. */
import { UnsupportedFunctionalityError } from "@ai-sdk/provider";
import type { LanguageModelV4FilePart, LanguageModelV4Message, LanguageModelV4Prompt } from "@ai-sdk/provider";

import type { ChatMessage, ContentPart } from "../../engine/index.ts";

type MessagePart = Exclude<LanguageModelV4Message["content"], string>[number];

/** Throws UnsupportedFunctionalityError for tool results and for files that are not pictures. */
export function toChatMessages(prompt: LanguageModelV4Prompt): ChatMessage[] {
  return prompt.map(({ role, content }) => {
    if (role === "tool") throw new UnsupportedFunctionalityError({ functionality: "messages of the role tool" });
    return { role, content: typeof content === "string" ? content : content.flatMap(toContentParts) };
  });
}

function toContentParts(part: MessagePart): ContentPart[] {
  switch (part.type) {
    case "text":
      return [{ type: "text", text: part.text }];
    case "file":
      return [{ type: "image", reference: imageReference(part) }];
    // Chat templates leave out the reasoning of earlier turns.
    case "reasoning":
      return [];
    case "custom":
    case "reasoning-file":
    case "tool-call":
    case "tool-result":
    case "tool-approval-response":
      throw new UnsupportedFunctionalityError({ functionality: `parts of the type ${part.type}` });
    default:
      return part satisfies never;
  }
}

function imageReference({ data, mediaType }: LanguageModelV4FilePart): string {
  if (mediaType.split("/")[0] !== "image") {
    throw new UnsupportedFunctionalityError({ functionality: `files of the type ${mediaType}` });
  }
  switch (data.type) {
    case "data":
      return `data:${mediaType};base64,${toBase64(data.data)}`;
    case "url":
      return data.originalUrl ?? data.url.href;
    case "reference":
    case "text":
      throw new UnsupportedFunctionalityError({ functionality: `images given as ${data.type}` });
    default:
      return data satisfies never;
  }
}

function toBase64(bytes: Uint8Array | string): string {
  if (typeof bytes === "string") return bytes;
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64");
}
