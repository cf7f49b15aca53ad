/**
 * The question about a query and a document on which Qwen3-Reranker and Qwen3-VL-Reranker were trained, for chat templates
 * that have no roles for the two.
 *
 * @see https://github.com/QwenLM/Qwen3-VL-Embedding (src/models/qwen3_vl_reranker.py) and the card of Qwen3-Reranker
 */
import type { ChatMessage, ChatPromptInput, ContentPart } from "../contract/generation-request.ts";

type Conversation = Omit<ChatPromptInput, "kind">;

const task =
  'Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be "yes" or "no".';
const defaultInstruction = {
  ofTexts: "Given a web search query, retrieve relevant passages that answer the query",
  ofPictures: "Given a search query, retrieve relevant candidates that answer the query.",
};

/**
 * The conversation as it is, unless it has a query and a document. A system message of such a pair is the instruction:
 * what makes a document relevant.
 */
export function withPairAsQuestion(conversation: Conversation, acceptsImages: boolean): Conversation {
  const { messages, templateArguments } = conversation;
  const query = contentOf(messages, "query");
  const document = contentOf(messages, "document");
  if (query === undefined || document === undefined) return conversation;
  const instruction = textOf(contentOf(messages, "system") ?? "");
  const content = acceptsImages
    ? joined([
        textPart(`<Instruct>: ${instruction || defaultInstruction.ofPictures}<Query>:`),
        ...partsOf(query),
        textPart("\n<Document>:"),
        ...partsOf(document),
      ])
    : `<Instruct>: ${instruction || defaultInstruction.ofTexts}\n<Query>: ${textOf(query)}\n<Document>: ${textOf(document)}`;
  return {
    ...conversation,
    messages: [
      { role: "system", content: task },
      { role: "user", content },
    ],
    // Without it, the answer of Qwen3 begins with thinking.
    templateArguments: { enable_thinking: false, ...templateArguments },
  };
}

function contentOf(messages: readonly ChatMessage[], role: ChatMessage["role"]): ChatMessage["content"] | undefined {
  return messages.find((message) => message.role === role)?.content;
}

function partsOf(content: ChatMessage["content"]): readonly ContentPart[] {
  return typeof content === "string" ? [textPart(content)] : content;
}

function textOf(content: ChatMessage["content"]): string {
  if (typeof content === "string") return content;
  return content.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n");
}

function textPart(text: string): ContentPart {
  return { type: "text", text };
}

/** Successive texts are one: templates may put something between parts. */
function joined(parts: readonly ContentPart[]): ContentPart[] {
  const result: ContentPart[] = [];
  for (const part of parts) {
    const last = result.at(-1);
    if (part.type === "text" && last?.type === "text") result[result.length - 1] = textPart(last.text + part.text);
    else result.push(part);
  }
  return result;
}
