/**
 * Lets the model continue the last message of a conversation (`continue_final_message`), as transformers does it: its
 * text, or its thinking if it has no text yet.
 */
import { EngineError } from "../contract/errors.ts";
import type { ChatMessage, ChatPromptInput } from "../contract/generation-request.ts";

export interface OpenConversation {
  /** The continued text of the last message ends with a tag. */
  readonly messages: readonly ChatMessage[];
  /** Returns the rendered conversation up to the tag. Throws EngineError `invalid_argument` if it is not there. */
  cut(rendered: string): string;
}

/**
 * `character` must occur in no message. The space in the tag shows whether the template trims messages, in which case
 * the space before the tag goes too. Throws EngineError `invalid_argument` if the last message has nothing to continue.
 */
export function openFinalMessage(messages: readonly ChatMessage[], character: string): OpenConversation {
  const tag = `${character} `;
  const last = messages.at(-1);
  const open = last === undefined ? null : withTag(last, tag);
  if (open === null) throw refusal("The final message has no text that could be continued.");
  if ((last?.toolCalls ?? []).length > 0) {
    throw refusal("The final message has calls after its text, so the text cannot be continued. Send their results.");
  }
  const part = last !== undefined && continuesThinking(last) ? "thinking" : "text";
  return {
    messages: [...messages.slice(0, -1), open],
    cut(rendered) {
      const end = rendered.lastIndexOf(character);
      if (end === -1) throw refusal(`The model's chat template leaves out the ${part} of the final message.`);
      const text = rendered.slice(0, end);
      return rendered.startsWith(tag, end) ? text : text.trimEnd();
    },
  };
}

/**
 * The part of the final message that the model continues, and its text so far; null if the model begins a turn of its
 * own.
 */
export function continuedPart({
  messages,
  continueFinalMessage = false,
}: Pick<ChatPromptInput, "messages" | "continueFinalMessage">): {
  readonly kind: "text" | "thinking";
  readonly text: string;
} | null {
  const last = messages.at(-1);
  if (!continueFinalMessage || last === undefined) return null;
  return continuesThinking(last)
    ? { kind: "thinking", text: last.reasoning ?? "" }
    : { kind: "text", text: textOf(last) };
}

/** The model has thought, and not answered yet. */
function continuesThinking(message: ChatMessage): boolean {
  return (message.reasoning ?? "") !== "" && textOf(message).trim() === "";
}

function textOf({ content }: ChatMessage): string {
  if (typeof content === "string") return content;
  return content.map((part) => (part.type === "text" ? part.text : "")).join("");
}

/** Null without text. */
function withTag(message: ChatMessage, tag: string): ChatMessage | null {
  const { content, reasoning = "" } = message;
  // Templates print the thinking before the text, and often only what it has of both.
  if (continuesThinking(message)) return { ...message, content: "", reasoning: reasoning + tag };
  if (typeof content === "string") return { ...message, content: content + tag };
  const index = content.findLastIndex(({ type }) => type === "text");
  const part = content[index];
  if (part?.type !== "text") return null;
  return { ...message, content: content.with(index, { ...part, text: part.text + tag }) };
}

function refusal(message: string): EngineError {
  return new EngineError("invalid_argument", `continue_final_message: ${message}`, { parameter: "prompt.messages" });
}
