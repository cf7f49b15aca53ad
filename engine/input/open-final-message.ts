/** Lets the model continue the last message of a conversation (`continue_final_message`), as transformers does it. */
import { EngineError } from "../contract/errors.ts";
import type { ChatMessage, ContentPart } from "../contract/generation-request.ts";

export interface OpenConversation {
  /** The last text of the last message ends with a tag. */
  readonly messages: readonly ChatMessage[];
  /** Returns the rendered conversation up to the tag. Throws EngineError `invalid_argument` if it is not there. */
  cut(rendered: string): string;
}

/**
 * `character` must occur in no message. The space in the tag shows whether the template trims messages, in which case
 * the space before the tag goes too. Throws EngineError `invalid_argument` if the last message has no text.
 */
export function openFinalMessage(messages: readonly ChatMessage[], character: string): OpenConversation {
  const tag = `${character} `;
  const last = messages.at(-1);
  const content = last === undefined ? null : withTag(last.content, tag);
  if (last === undefined || content === null) throw refusal("The final message has no text that could be continued.");
  return {
    messages: [...messages.slice(0, -1), { ...last, content }],
    cut(rendered) {
      const end = rendered.lastIndexOf(character);
      if (end === -1) throw refusal("The model's chat template leaves out the text of the final message.");
      const text = rendered.slice(0, end);
      return rendered.startsWith(tag, end) ? text : text.trimEnd();
    },
  };
}

/** Null without text. */
function withTag(content: ChatMessage["content"], tag: string): ChatMessage["content"] | null {
  if (typeof content === "string") return content + tag;
  const index = content.findLastIndex(({ type }) => type === "text");
  if (index === -1) return null;
  return content.map((part, at): ContentPart =>
    at === index && part.type === "text" ? { ...part, text: part.text + tag } : part,
  );
}

function refusal(message: string): EngineError {
  return new EngineError("invalid_argument", `continue_final_message: ${message}`, { parameter: "prompt.messages" });
}
