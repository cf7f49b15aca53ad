/** Arranges the turns of Responses and Messages, which have freer rules than chat templates. */
import type { ChatMessageFields } from "./schemas/chat-completion-request.ts";

type ContentFields = NonNullable<ChatMessageFields["content"]>;
type PartFields = Exclude<ContentFields, string>[number];

const separator = "\n\n";

/**
 * The system and developer messages at the start become one. The text of a later one joins the turn of the user or the
 * result of a tool before it; after an answer, it starts the user's next turn. Many chat templates reject or leave out
 * every system message but the first, and agents send several. Earlier turns stay as they are while a conversation
 * grows, so that their keys and values are reused. The rules are those of vLLM (`inline_system.py`).
 */
export function withOneSystemMessage(messages: readonly ChatMessageFields[]): ChatMessageFields[] {
  const firstOther = messages.findIndex((message) => !isSystem(message));
  const leading = firstOther === -1 ? messages : messages.slice(0, firstOther);
  const turns: ChatMessageFields[] = [];
  if (leading.length > 0) turns.push({ role: "system", content: joinContents(leading.map(contentOf)) });
  /** The system messages since the last turn. */
  const held: ContentFields[] = [];
  for (const next of [...messages.slice(leading.length), null]) {
    if (next !== null && isSystem(next)) {
      held.push(contentOf(next));
      continue;
    }
    // Nothing may stand between a call and its results.
    const contents = next?.role === "tool" ? [] : held.splice(0);
    const last = turns.at(-1);
    if (contents.length === 0) {
      if (next !== null) turns.push(next);
    } else if (last?.role === "user" || last?.role === "tool") {
      turns[turns.length - 1] = { ...last, content: joinContents([last.content, ...contents]) };
      if (next !== null) turns.push(next);
    } else if (next?.role === "user") {
      turns.push({ ...next, content: joinContents([...contents, next.content]) });
    } else {
      turns.push({ role: "user", content: joinContents(contents) });
      if (next !== null) turns.push(next);
    }
  }
  return turns;
}

/** Adjacent turns of the user, or of the assistant, become one. A turn with calls is complete. */
export function withCombinedTurns(messages: readonly ChatMessageFields[]): ChatMessageFields[] {
  const runs: ChatMessageFields[][] = [];
  for (const message of messages) {
    const run = runs.at(-1) ?? [];
    if (continuesTurn(run.at(-1), message)) run.push(message);
    else runs.push([message]);
  }
  return runs.map((run) => (run.length === 1 ? run[0]! : combine(run)));
}

function continuesTurn(last: ChatMessageFields | undefined, message: ChatMessageFields): boolean {
  if (last?.role === "assistant") return message.role === "assistant" && !last.tool_calls;
  return last?.role === "user" && message.role === "user";
}

function combine(run: readonly ChatMessageFields[]): ChatMessageFields {
  const last = run.at(-1)!;
  const content = joinContents(run.map(contentOf));
  if (last.role !== "assistant") return { ...last, content };
  const thinking = run.flatMap((turn) => (turn.role === "assistant" ? (turn.reasoning_content ?? []) : []));
  return { ...last, content, ...(thinking.length > 0 && { reasoning_content: thinking.join("\n") }) };
}

function isSystem({ role }: ChatMessageFields): boolean {
  return role === "system" || role === "developer";
}

function contentOf({ content }: ChatMessageFields): ContentFields {
  return content ?? "";
}

/** Adjacent texts become one, because some templates print parts with nothing between them. */
function joinContents(contents: readonly ContentFields[]): ContentFields {
  const given = contents.filter((content) => content !== "");
  if (given.every((content) => typeof content === "string")) return given.join(separator);
  const parts: PartFields[] = [];
  for (const content of given) {
    const [first, ...others] = partsOf(content);
    const last = parts.at(-1);
    if (first === undefined) continue;
    if (last === undefined || !("text" in last) || !("text" in first)) parts.push(first);
    else parts[parts.length - 1] = { type: "text", text: `${last.text}${separator}${first.text}` };
    parts.push(...others);
  }
  return parts;
}

function partsOf(content: ContentFields): readonly PartFields[] {
  return typeof content === "string" ? [{ type: "text", text: content }] : content;
}
