/** Renders a conversation as a prompt in which exactly its images are placeholders. */
import { EngineError } from "../contract/errors.ts";
import type { ChatMessage, ImagePart } from "../contract/generation-request.ts";
import type { TextRange } from "../text/added-tokens.ts";
import type { ChatTemplate, TemplateMessage } from "../text/chat-template.ts";

export interface ChatPrompt {
  readonly text: string;
  /** Ranges in which `text` contains the placeholder's spelling but means no image. */
  readonly literal: readonly TextRange[];
}

export interface ChatPromptOptions {
  readonly template: ChatTemplate;
  /** Text of an image placeholder; null for a model that does not accept images. */
  readonly imagePlaceholder: string | null;
  readonly addGenerationPrompt: boolean;
}

/** The images of a conversation in the order of the messages, which is the order of the placeholders. */
export function imagePartsOf(messages: readonly ChatMessage[]): ImagePart[] {
  return messages.flatMap(({ content }) =>
    typeof content === "string" ? [] : content.filter((part): part is ImagePart => part.type !== "text"),
  );
}

/**
 * Renders the chat template. A template that iterates over content parts places the images itself; a placeholder
 * written in a message's text is then ordinary text. For a template that prints the content, the text parts are joined
 * by newlines. Placeholders in them stand for the message's images. Missing placeholders are put before the text, one
 * per line (as in vLLM), and surplus ones are ordinary text.
 */
export function renderChat(messages: readonly ChatMessage[], options: ChatPromptOptions): ChatPrompt {
  const { template, imagePlaceholder, addGenerationPrompt } = options;
  const mark = imagePlaceholder === null ? null : createLiteralMark(messages, imagePlaceholder);
  const templateMessages = messages.map((message) => toTemplateMessage(message, template, imagePlaceholder, mark));
  const rendered = template.render(templateMessages, { addGenerationPrompt });
  return mark?.remove(rendered) ?? { text: rendered, literal: [] };
}

/**
 * Whether the tokenizer adds its tokens around a rendered conversation. Processors of transformers add them unless the
 * conversation begins with the beginning token; tokenizers of text models leave them to the template.
 *
 * @param bosToken The text of the beginning token; null for a tokenizer without one.
 */
export function addsSpecialTokens(
  rendered: string,
  { acceptsImages, bosToken }: { readonly acceptsImages: boolean; readonly bosToken: string | null },
): boolean {
  return acceptsImages && (bosToken === null || !rendered.startsWith(bosToken));
}

function toTemplateMessage(
  { role, content }: ChatMessage,
  template: ChatTemplate,
  imagePlaceholder: string | null,
  mark: LiteralMark | null,
): TemplateMessage {
  const parts = typeof content === "string" ? [{ type: "text", text: content } as const] : content;
  if (template.contentFormat === "parts") {
    return {
      role,
      content: parts.map((part) =>
        part.type === "text" ? { type: "text", text: mark?.apply(part.text, 0) ?? part.text } : { type: "image" },
      ),
    };
  }
  const numImages = parts.filter((part) => part.type !== "text").length;
  const text = parts.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n");
  if (mark === null || imagePlaceholder === null) return { role, content: text };
  const numPlaced = Math.min(numImages, text.split(imagePlaceholder).length - 1);
  const missing = Array.from({ length: numImages - numPlaced }, () => imagePlaceholder);
  return { role, content: [...missing, mark.apply(text, numPlaced)].join("\n") };
}

/** A character that occurs in no message. It is put inside literal placeholders while the template is rendered. */
interface LiteralMark {
  /** Marks all placeholders in `text` but the first `numMeant`. */
  apply(text: string, numMeant: number): string;
  /** Removes the marks and returns their positions. */
  remove(rendered: string): { readonly text: string; readonly literal: readonly TextRange[] };
}

function createLiteralMark(messages: readonly ChatMessage[], placeholder: string): LiteralMark {
  const character = unusedPrivateCharacter(messages);
  const marked = placeholder.slice(0, 1) + character + placeholder.slice(1);
  return {
    apply(text, numMeant) {
      const pieces = text.split(placeholder);
      const meant = pieces.slice(0, numMeant + 1).join(placeholder);
      return [meant, ...pieces.slice(numMeant + 1)].join(marked);
    },
    remove(rendered) {
      const literal: TextRange[] = [];
      const pieces = rendered.split(character);
      let length = 0;
      for (const piece of pieces.slice(0, -1)) {
        length += piece.length;
        literal.push({ start: length - 1, end: length - 1 + placeholder.length });
      }
      return { text: pieces.join(""), literal };
    },
  };
}

function unusedPrivateCharacter(messages: readonly ChatMessage[]): string {
  const used = new Set<string>();
  for (const { content } of messages) {
    const texts =
      typeof content === "string" ? [content] : content.map((part) => (part.type === "text" ? part.text : ""));
    for (const text of texts) {
      for (const [character] of text.matchAll(/[\uE000-\uF8FF]/g)) used.add(character);
    }
  }
  for (let code = 0xe000; code <= 0xf8ff; code += 1) {
    const character = String.fromCharCode(code);
    if (!used.has(character)) return character;
  }
  throw new EngineError(
    "invalid_argument",
    "The messages use every private use character of Unicode, and the service needs a free one.",
    {
      parameter: "prompt.messages",
    },
  );
}
