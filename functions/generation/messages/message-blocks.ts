/** Wire schema of the conversation of POST /v1/messages: turns of the user and the assistant in blocks. */
import { z } from "zod";

import { unmarkNumbers } from "../parse-arguments.ts";
import { describeUnknown, MAX_MESSAGES, MAX_PARTS } from "../schemas/chat-completion-request.ts";
import { jsonObject } from "../schemas/tool-fields.ts";
import { boundedList, fileId, flag, name, text } from "../schemas/wire-types.ts";
import { toolChangeBlocks, toolReferenceBlock } from "./tool-definitions.ts";

/** Values and characters of the input of a call, which may contain a file that the model wrote. */
const MAX_INPUT_SIZE = 524_288;

const urlSource = z.object({ type: z.literal("url"), url: text });
/** An uploaded file. */
const fileSource = z.object({ type: z.literal("file"), file_id: fileId });

const imageSource = z.discriminatedUnion(
  "type",
  [
    z.object({
      type: z.literal("base64"),
      media_type: z.enum(
        ["image/jpeg", "image/png", "image/gif", "image/webp"],
        "must be image/jpeg, image/png, image/gif or image/webp",
      ),
      data: text,
    }),
    urlSource,
    fileSource,
  ],
  { error: ({ input }) => describeUnknown(input, "type", "must be base64, url or file") },
);

const textBlock = z.object({ type: z.literal("text"), text });
const imageBlock = z.object({ type: z.literal("image"), source: imageSource });

/** The model has no way to cite. Some clients ask for citations of every document, so the answer warns of it. */
const citations = z.object({ enabled: flag.nullish() }, 'must be an object: {"enabled": …}').nullish();

const documentBlock = z.object({
  type: z.literal("document"),
  source: z.discriminatedUnion(
    "type",
    [
      z.object({
        type: z.literal("text"),
        media_type: z.literal("text/plain", "must be text/plain"),
        data: text,
      }),
      z.object({
        type: z.literal("content"),
        content: z.union([text, boundedList(textBlock, MAX_PARTS, "must be a string or a list of text blocks")]),
      }),
      z.object({
        type: z.literal("base64"),
        media_type: z.literal("application/pdf", "must be application/pdf"),
        data: text,
      }),
      urlSource,
      fileSource,
    ],
    {
      error: ({ input }) => describeUnknown(input, "type", "must be base64, url, file, text or content"),
    },
  ),
  title: text.nullish(),
  context: text.nullish(),
  citations,
});

const searchResultBlock = z.object({
  type: z.literal("search_result"),
  source: text,
  title: text,
  content: boundedList(textBlock, MAX_PARTS, "must be a list of text blocks"),
  citations,
});

const resultTypes = "text, image, document, search_result or tool_reference";
const resultBlock = z.discriminatedUnion(
  "type",
  [textBlock, imageBlock, documentBlock, searchResultBlock, toolReferenceBlock],
  { error: ({ input }) => describeUnknown(input, "type", `must be a supported block type: ${resultTypes}`) },
);
const resultRule = "must be a string or a list of blocks";

const blockRule =
  "must be a supported block type: text, image, document, search_result, tool_use, tool_result or thinking";

const block = z.discriminatedUnion(
  "type",
  [
    textBlock,
    imageBlock,
    documentBlock,
    searchResultBlock,
    z.object({
      type: z.literal("tool_use"),
      id: name,
      // Also one that the model invented.
      name,
      input: jsonObject(MAX_INPUT_SIZE, "must be an object").transform(unmarkNumbers),
    }),
    z.object({
      type: z.literal("tool_result"),
      tool_use_id: name,
      content: z.union([text, boundedList(resultBlock, MAX_PARTS, resultRule)], resultRule).nullish(),
      is_error: flag.nullish(),
    }),
    z.object({ type: z.literal("thinking"), thinking: text }),
    // Only the server that encrypted it can read it.
    z.object({ type: z.literal("redacted_thinking") }),
    ...toolChangeBlocks,
  ],
  { error: ({ input }) => describeUnknown(input, "type", blockRule) },
);

const contentRule = "must be a string or a list of blocks";

const message = z.object(
  {
    role: z.enum(["user", "assistant", "system"], "must be user, assistant or system"),
    content: z.union([text, boundedList(block, MAX_PARTS, contentRule)], contentRule),
    /** Of a system message: whether the model sees its text in later turns of the user too. */
    clear_at: z.enum(["next_user_message", "never"], "must be next_user_message or never").nullish(),
  },
  'must be an object: {"role": …, "content": …}',
);

export const messages = boundedList(message, MAX_MESSAGES, "must be a list of messages")
  .min(1, "must contain at least one message")
  .superRefine((list, context) => {
    checkEnd(list, context);
    for (const [index, { role, content }] of list.entries()) {
      if (typeof content === "string") continue;
      const wrong = content.findIndex(({ type }) => !blocksOf[role].has(type));
      if (wrong === -1) continue;
      context.addIssue({
        code: "custom",
        path: [index, "content", wrong, "type"],
        message: `cannot be ${content[wrong]?.type} in a message of the ${role}`,
      });
      return;
    }
  });

/** Anthropic's rule: white space at the end of a text that the model continues misleads it. An empty text is left out. */
function checkEnd(list: readonly z.output<typeof message>[], context: z.RefinementCtx): void {
  const last = list.at(-1);
  if (last?.role !== "assistant") return;
  const { content } = last;
  const block = typeof content === "string" ? null : content.at(-1);
  const end = block === null ? content : block?.type === "text" ? block.text : "";
  if (typeof end !== "string" || end.trim() === "" || end.trimEnd() === end) return;
  context.addIssue({
    code: "custom",
    path: [list.length - 1, "content", ...(block === null ? [] : [content.length - 1, "text"])],
    message: "must not end with white space, because the model continues it",
  });
}

const blocksOf: Readonly<Record<"user" | "assistant" | "system", ReadonlySet<string>>> = {
  user: new Set(["text", "image", "document", "search_result", "tool_result"]),
  assistant: new Set(["text", "tool_use", "thinking", "redacted_thinking"]),
  system: new Set(["text", "tool_addition", "tool_removal"]),
};

const systemRule = "must be a string or a list of text blocks";

export const system = z.union([text, boundedList(textBlock, MAX_PARTS, systemRule)], systemRule);

export type MessageFields = z.output<typeof messages>[number];
export type Block = z.output<typeof block>;
export type ImageSource = z.output<typeof imageSource>;

/** Whether a document or search result of the messages is to be cited. */
export function asksForCitations({ messages }: { readonly messages: readonly MessageFields[] }): boolean {
  const isCited = (part: object): boolean =>
    "citations" in part && (part.citations as z.output<typeof citations>)?.enabled === true;
  return messages.some(
    ({ content }) =>
      typeof content !== "string" &&
      content.some(
        (part) =>
          isCited(part) || (part.type === "tool_result" && Array.isArray(part.content) && part.content.some(isCited)),
      ),
  );
}
