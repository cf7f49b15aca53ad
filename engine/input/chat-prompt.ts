/** Renders a conversation as a prompt in which exactly its images are placeholders. */
import { EngineError } from "../contract/errors.ts";
import type { ChatMessage, ChatPromptInput, ContentPart } from "../contract/generation-request.ts";
import { JsonFloat, JsonInteger } from "../contract/tools.ts";
import type { JsonObject, ToolDefinition } from "../contract/tools.ts";
import { noMarkers, type ImageMarkers } from "../multimodal/multimodal-processor.ts";
import type { TextRange } from "../text/added-tokens.ts";
import type { ChatTemplate, TemplateMessage, TemplateTool } from "../text/chat-template.ts";
import { openFinalMessage } from "./open-final-message.ts";
import { withPairAsQuestion } from "./pair-question.ts";
import { MAX_LITERAL_PLACEHOLDERS, splitPrompt, tooManyPlaceholders, videosOf } from "./prompt-parts.ts";
import type { OpenedVideos } from "./video-loader.ts";

export interface ChatPrompt {
  readonly text: string;
  /** Ranges in which `text` contains the placeholder's spelling but means no image. */
  readonly literal: readonly TextRange[];
}

export interface ChatPromptOptions {
  readonly template: ChatTemplate;
  /** Text of an image placeholder; null for a model that does not accept images. */
  readonly imagePlaceholder: string | null;
  /** Around the placeholders that are written into texts. Default: none. */
  readonly markers?: ImageMarkers | undefined;
  /** The videos of the conversation. Default: none. */
  readonly videos?: ChatVideos | undefined;
  /** For a template that knows nothing of images: each stands at its place in the text of its message. Default false. */
  readonly placesImagesInText?: boolean | undefined;
}

export interface ChatVideos {
  /** What the template writes for a video; null for a model that knows only images. */
  readonly placeholder: string | null;
  /** For a template that knows nothing of videos: the placeholder is a text in the place of each. Default false. */
  readonly placesVideosInText?: boolean | undefined;
  /** Before the text of the video of this index. Default: nothing. */
  readonly numberText?: ((this: void, index: number) => string) | undefined;
  readonly opened: OpenedVideos;
}

/**
 * Renders the chat template. A template that iterates over content parts places the images itself; a placeholder
 * written in a message's text is then ordinary text. If it accepts strings too, it gets the messages that were given as
 * strings, and every system message, as strings. For a template that prints the content, the text parts are joined
 * by newlines. Placeholders in them stand for the message's images. Missing placeholders are put before the text, one
 * per line and between the model's markers (as in vLLM), and surplus ones are ordinary text. If the format is `spelled`,
 * that holds for a message whose texts have a placeholder; others are written as for a template that knows nothing of
 * images. A video is written by the template and replaced by its text, or is as many images as it has items. A query
 * and a document become a question if the template has no roles for them.
 */
export function renderChat(given: Omit<ChatPromptInput, "kind">, options: ChatPromptOptions): ChatPrompt {
  const hasQuery = given.messages.some(({ role }) => role === "query");
  const conversation =
    hasQuery && !options.template.writesPairs ? withPairAsQuestion(given, options.imagePlaceholder !== null) : given;
  const { addGenerationPrompt, continueFinalMessage = false, tools = [], templateArguments = {} } = conversation;
  if (conversation.messages.length === 0) {
    // Templates fail on the first message, which would look like a fault of the checkpoint.
    const parameter = "prompt.messages";
    throw new EngineError("invalid_argument", "The conversation has no message with content.", { parameter });
  }
  const open = continueFinalMessage
    ? openFinalMessage(
        conversation.messages,
        unusedPrivateCharacter([conversation.messages.map(contentTexts), tools, templateArguments]),
      )
    : null;
  const { imagePlaceholder, markers = noMarkers, videos } = options;
  const videoPlaceholder = videos?.placeholder ?? null;
  const opened = open?.messages ?? conversation.messages;
  const messages = videos === undefined || videoPlaceholder !== null ? opened : opened.map(withItems(videos.opened));
  const template = tools.length > 0 ? options.template.forTools : options.template;
  const mark =
    imagePlaceholder === null
      ? null
      : createLiteralMark(
          [messages.map(contentTexts), tools, templateArguments],
          videoPlaceholder === null ? [imagePlaceholder] : [imagePlaceholder, videoPlaceholder],
        );
  const isSpelled = template.contentFormat === "spelled" || options.placesImagesInText === true;
  const videoText = videos?.placesVideosInText === true ? videoPlaceholder : null;
  const rendering = { template, imagePlaceholder, videoPlaceholder, videoText, markers, isSpelled, mark };
  const whole = template.render(
    messages.map((message) => toTemplateMessage(message, rendering)),
    {
      addGenerationPrompt,
      ...(tools.length > 0 && { tools: tools.map((tool) => markAll(toTemplateTool(tool), mark)) }),
      templateArguments: markAll(templateArguments, mark),
    },
  );
  const withPlaceholders = open?.cut(whole) ?? whole;
  const rendered =
    videos === undefined || videoPlaceholder === null
      ? withPlaceholders
      : replaceVideos(withPlaceholders, videoPlaceholder, videoTexts(messages, videos));
  return mark?.remove(rendered) ?? { text: rendered, literal: [] };
}

/**
 * Whether the template writes the placeholder for a picture of a user. True also for a template that rejects such a
 * conversation, which shows nothing.
 */
export function writesPictures(options: ChatPromptOptions): boolean {
  const { imagePlaceholder } = options;
  const messages: readonly ChatMessage[] = [{ role: "user", content: [{ type: "image", reference: null }] }];
  try {
    return (
      imagePlaceholder === null ||
      renderChat({ messages, addGenerationPrompt: true }, options).text.includes(imagePlaceholder)
    );
  } catch {
    return true;
  }
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

/** Everything of a message that a template may print, but its images. */
function contentTexts({ content, ...rest }: ChatMessage): unknown {
  return [typeof content === "string" ? content : content.filter(({ type }) => type === "text"), rest];
}

function toTemplateTool({ name, description, parameters }: ToolDefinition): TemplateTool {
  return {
    type: "function",
    function: {
      name,
      ...(description !== null && { description }),
      parameters: parameters ?? { type: "object", properties: {} },
    },
  };
}

/** For a model that knows only images: each item of a video is one. */
function withItems(opened: OpenedVideos): (message: ChatMessage) => ChatMessage {
  return (message) => {
    const { content } = message;
    if (typeof content === "string" || !content.some(({ type }) => type === "video")) return message;
    const parts = content.flatMap((part): readonly ContentPart[] =>
      part.type === "video" ? (opened.get(part)?.items ?? []).map(() => ({ type: "image", reference: null })) : [part],
    );
    return { ...message, content: parts };
  };
}

/** In the order of the messages. A part may be there twice. */
function videoTexts(messages: readonly ChatMessage[], { opened, numberText }: ChatVideos): string[] {
  const parts = messages.flatMap(({ content }) => (typeof content === "string" ? [] : videosOf(content)));
  return parts.map((part, index) => (numberText?.(index) ?? "") + (opened.get(part)?.text ?? ""));
}

function replaceVideos(rendered: string, placeholder: string, texts: readonly string[]): string {
  const pieces = rendered.split(placeholder);
  if (pieces.length - 1 !== texts.length) {
    throw new EngineError(
      "invalid_argument",
      `The model's chat template writes ${pieces.length - 1} places (${placeholder}) for the ${texts.length} videos of the messages.`,
      { parameter: "prompt.messages" },
    );
  }
  return pieces.map((piece, index) => piece + (texts[index] ?? "")).join("");
}

interface Rendering {
  readonly template: ChatTemplate;
  readonly imagePlaceholder: string | null;
  readonly videoPlaceholder: string | null;
  /** In the place of a video; null for a template that writes videos itself. */
  readonly videoText: string | null;
  readonly markers: ImageMarkers;
  /** Whether images stand at their places in texts. */
  readonly isSpelled: boolean;
  readonly mark: LiteralMark | null;
}

function toTemplateMessage(message: ChatMessage, rendering: Rendering): TemplateMessage {
  const { role, name, toolCalls, toolCallId, reasoning } = message;
  const { mark } = rendering;
  return {
    role,
    content: toTemplateContent(message, rendering),
    ...(name !== undefined && { name: markAll(name, mark) }),
    ...(toolCalls !== undefined && {
      tool_calls: toolCalls.map((call) =>
        markAll(
          { type: "function", id: call.id, function: { name: call.name, arguments: call.arguments } } as const,
          mark,
        ),
      ),
    }),
    ...(toolCallId !== undefined && { tool_call_id: markAll(toolCallId, mark) }),
    ...(reasoning !== undefined && {
      reasoning_content: markAll(reasoning, mark),
      reasoning: markAll(reasoning, mark),
      thinking: markAll(reasoning, mark),
    }),
  };
}

function toTemplateContent(
  { role, content }: ChatMessage,
  { template, imagePlaceholder, videoPlaceholder, videoText, markers, isSpelled, mark }: Rendering,
): TemplateMessage["content"] {
  const parts = typeof content === "string" ? [{ type: "text", text: content } as const] : content;
  const isPlaced = template.contentFormat === "spelled" && hasPlaceholder(parts, imagePlaceholder);
  if (mark !== null && imagePlaceholder !== null && isSpelled && !isPlaced) {
    return splitPrompt(parts, markers)
      .map((part) => ("image" in part ? imagePlaceholder : mark.apply(part.text, 0)))
      .join("");
  }
  if (template.contentFormat === "either") {
    const text = typeof content === "string" ? content : role === "system" ? joinedText(content) : null;
    if (text !== null) return mark?.apply(text, 0) ?? text;
  }
  if (template.contentFormat === "either" || template.contentFormat === "parts") {
    return parts.map((part) => {
      if (part.type === "text") return { type: "text", text: mark?.apply(part.text, 0) ?? part.text };
      if (part.type !== "video") return { type: "image" };
      return videoText === null ? { type: "video" } : { type: "text", text: videoText };
    });
  }
  const numImages = parts.filter((part) => part.type !== "text").length;
  const text = parts.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n");
  if (mark === null || imagePlaceholder === null) return text;
  if (videoPlaceholder !== null && videosOf(parts).length > 0) {
    const places = parts.flatMap((part) => {
      if (part.type === "text") return [];
      return part.type === "video" ? [videoPlaceholder] : [markers.imageStart + imagePlaceholder + markers.imageEnd];
    });
    return [...places, mark.apply(text, 0)].join("\n");
  }
  const numPlaced = Math.min(numImages, text.split(imagePlaceholder, numImages + 1).length - 1);
  const missing = Array.from(
    { length: numImages - numPlaced },
    () => markers.imageStart + imagePlaceholder + markers.imageEnd,
  );
  return [...missing, mark.apply(text, numPlaced)].join("\n");
}

/** Whether a client wrote the placeholder of a picture itself. */
function hasPlaceholder(parts: readonly ContentPart[], placeholder: string | null): boolean {
  return placeholder !== null && parts.some((part) => part.type === "text" && part.text.includes(placeholder));
}

/** The text of a message that consists of nothing else; null with a picture. */
function joinedText(parts: readonly ContentPart[]): string | null {
  return parts.every((part) => part.type === "text") ? parts.map(({ text }) => text).join("") : null;
}

/** The value with every placeholder in its texts and names marked: none of them means an image. */
function markAll<Value>(value: Value, mark: LiteralMark | null): Value {
  return mark === null ? value : (markedValue(value, mark) as Value);
}

/** Values of requests are nested as deeply as the parser of bodies allows, which is not too deep to recurse. */
function markedValue(value: unknown, mark: LiteralMark): unknown {
  if (typeof value === "string") return mark.apply(value, 0);
  if (Array.isArray(value)) return value.map((element) => markedValue(element, mark));
  if (typeof value !== "object" || value === null) return value;
  if (value instanceof JsonFloat || value instanceof JsonInteger) return value;
  return Object.fromEntries(
    Object.entries(value as JsonObject).map(([name, member]) => [mark.apply(name, 0), markedValue(member, mark)]),
  );
}

/** A character that occurs in no message. It is put inside literal placeholders while the template is rendered. */
interface LiteralMark {
  /** Marks all placeholders in `text` but the first `numMeant`. Throws EngineError `invalid_argument` for too many. */
  apply(text: string, numMeant: number): string;
  /** Removes the marks and returns their positions. */
  remove(rendered: string): { readonly text: string; readonly literal: readonly TextRange[] };
}

/** @param printed Everything that the template may print. */
function createLiteralMark(printed: unknown, [placeholder, ...others]: readonly [string, ...string[]]): LiteralMark {
  const character = unusedPrivateCharacter(printed);
  const markOf = (literal: string): string => literal.slice(0, 1) + character + literal.slice(1);
  const marked = markOf(placeholder);
  let numLeft = MAX_LITERAL_PLACEHOLDERS;
  return {
    apply(given, numMeant) {
      const text = others.reduce((marking, other) => marking.replaceAll(other, markOf(other)), given);
      const pieces = text.split(placeholder, numMeant + numLeft + 2);
      numLeft -= Math.max(0, pieces.length - 1 - numMeant);
      if (numLeft < 0) throw tooManyPlaceholders(placeholder, "prompt.messages");
      const meant = pieces.slice(0, numMeant + 1).join(placeholder);
      return [meant, ...pieces.slice(numMeant + 1)].join(marked);
    },
    remove(rendered) {
      const literal: TextRange[] = [];
      const pieces = rendered.split(character);
      const text = pieces.join("");
      let length = 0;
      for (const piece of pieces.slice(0, -1)) {
        length += piece.length;
        const start = length - 1;
        const spelled = others.find((other) => text.startsWith(other, start)) ?? placeholder;
        literal.push({ start, end: start + spelled.length });
      }
      return { text, literal };
    },
  };
}

const FIRST_PRIVATE = 0xe000;
const LAST_PRIVATE = 0xf8ff;

function unusedPrivateCharacter(printed: unknown): string {
  const isUsed = new Uint8Array(LAST_PRIVATE - FIRST_PRIVATE + 1);
  for (const text of textsIn(printed)) {
    // Most texts have none, which an expression finds out soonest.
    const first = text.search(/[\uE000-\uF8FF]/);
    for (let index = first === -1 ? text.length : first; index < text.length; index++) {
      const code = text.charCodeAt(index);
      if (code >= FIRST_PRIVATE && code <= LAST_PRIVATE) isUsed[code - FIRST_PRIVATE] = 1;
    }
  }
  const free = isUsed.indexOf(0);
  if (free !== -1) return String.fromCharCode(FIRST_PRIVATE + free);
  throw new EngineError(
    "invalid_argument",
    "The messages use every private use character of Unicode, and the service needs a free one.",
    {
      parameter: "prompt.messages",
    },
  );
}

function* textsIn(value: unknown): Iterable<string> {
  if (typeof value === "string") yield value;
  if (typeof value !== "object" || value === null) return;
  for (const [name, member] of Object.entries(value)) {
    if (!Array.isArray(value)) yield name;
    yield* textsIn(member);
  }
}
