/**
 * The parts of prompts, in order: which of them become items, as images and frames of videos do, how they are split, and
 * how their images become placeholders.
 */
import { EngineError } from "../contract/errors.ts";
import type { ContentPart, DocumentPart, ImagePart, Prompt, VideoPart } from "../contract/generation-request.ts";
import type { ImageMarkers, MultiModalProcessor, ProcessorOptions } from "../multimodal/multimodal-processor.ts";
import type { ProcessingInfo } from "../multimodal/processing-info.ts";
import type { TextRange } from "../text/added-tokens.ts";
import type { OpenedDocuments, OpenedPage } from "./document-loader.ts";
import type { FramesPart, OpenedVideos } from "./video-loader.ts";

/** Text between the images of a prompt, or one of them. */
export type PromptPart = { readonly text: string } | { readonly image: ImagePart };

export interface RenderedPrompt {
  readonly text: string;
  /** Ranges in which `text` contains the placeholder's spelling but means no image. */
  readonly literal: readonly TextRange[];
}

/** The videos of a list of parts, in order. */
export function videosOf(parts: readonly ContentPart[]): VideoPart[] {
  return parts.filter((part) => part.type === "video");
}

/**
 * Texts and images by turns, a text first and last, with the markers of every image in the texts around it:
 * `text1<image1>text2` becomes `text1<Img>`, the image, `</Img>text2`. Empty texts stay, so that markers always have a
 * place.
 */
export function splitPrompt(parts: readonly ContentPart[], { imageStart, imageEnd }: ImageMarkers): PromptPart[] {
  const split: PromptPart[] = [];
  let text = "";
  for (const part of parts) {
    if (part.type === "video" || part.type === "document") continue;
    if (part.type === "text") {
      text += part.text;
      continue;
    }
    split.push({ text: text + imageStart }, { image: part });
    text = imageEnd;
  }
  return [...split, { text }];
}

/**
 * Placeholders that a request may spell as text. Each takes a microsecond to keep apart from those of images, and a body
 * of 32 MiB has room for millions.
 */
export const MAX_LITERAL_PLACEHOLDERS = 65_536;

export function tooManyPlaceholders(placeholder: string, parameter: string): EngineError {
  return new EngineError(
    "invalid_argument",
    `The prompt has the text ${placeholder}, which stands for an image, more than ${MAX_LITERAL_PLACEHOLDERS} times; that is the limit.`,
    { parameter },
  );
}

/**
 * @param placeholder Text of an image; null for a model whose images have no place in the text.
 * @throws EngineError `invalid_argument` for a text with too many placeholders.
 */
export function renderParts(
  parts: readonly ContentPart[],
  placeholder: string | null,
  markers: ImageMarkers,
): RenderedPrompt {
  const literal: TextRange[] = [];
  let text = "";
  for (const part of splitPrompt(parts, markers)) {
    if ("image" in part) {
      text += placeholder ?? "";
      continue;
    }
    if (placeholder !== null) {
      const { length } = placeholder;
      for (let at = part.text.indexOf(placeholder); at !== -1; at = part.text.indexOf(placeholder, at + length)) {
        if (literal.length === MAX_LITERAL_PLACEHOLDERS) throw tooManyPlaceholders(placeholder, "prompt");
        literal.push({ start: text.length + at, end: text.length + at + length });
      }
    }
    text += part.text;
  }
  return { text, literal };
}

export type ItemPart = ImagePart | FramesPart;

/** Of a conversation, or of a prompt in parts; messages that are plain texts have none. */
function partsOfPrompt(prompt: Prompt): readonly ContentPart[] {
  if (prompt.kind === "parts") return prompt.parts;
  if (prompt.kind !== "chat") return [];
  return prompt.messages.flatMap(({ content }) => (typeof content === "string" ? [] : content));
}

/** In the order of the prompt. */
export function videosOfPrompt(prompt: Prompt): readonly VideoPart[] {
  return videosOf(partsOfPrompt(prompt));
}

/** In the order of the prompt. */
export function documentsOfPrompt(prompt: Prompt): readonly DocumentPart[] {
  return partsOfPrompt(prompt).filter((part) => part.type === "document");
}

/** In the order of the prompt. */
export function imagesOfPrompt(prompt: Prompt): readonly ImagePart[] {
  if (prompt.kind === "text" || prompt.kind === "tokens") return prompt.images ?? [];
  return partsOfPrompt(prompt).filter(
    (part): part is ImagePart => part.type === "image" || part.type === "image_embeds",
  );
}

/** The pages of documents that stand for images of a prompt. */
export type PagesOfPrompt = ReadonlyMap<ContentPart, FramesPart>;

/** The conversation with images and texts in place of the pages of its documents, and the pages of these images. */
export function withPages(
  prompt: Prompt,
  documents: OpenedDocuments,
): { readonly prompt: Prompt; readonly pages: PagesOfPrompt } {
  const pages = new Map<ContentPart, FramesPart>();
  if (prompt.kind !== "chat" || documents.size === 0) return { prompt, pages };
  const partsOf = ({ image, text }: OpenedPage): readonly ContentPart[] => {
    const place = { type: "image", reference: null } as const;
    if (image !== null) pages.set(place, image);
    return [...(image === null ? [] : [place]), ...(text === null ? [] : [{ type: "text", text } as const])];
  };
  const messages = prompt.messages.map((message) => {
    const { content } = message;
    if (typeof content === "string") return message;
    const parts = content.flatMap((part) =>
      part.type === "document" ? (documents.get(part) ?? []).flatMap(partsOf) : [part],
    );
    return { ...message, content: parts };
  });
  return { prompt: { ...prompt, messages }, pages };
}

/** For a chat template that writes the videos of a message, or of all messages, behind the images. */
export function videosBehindImages(prompt: Prompt, images: "of-message" | "of-conversation"): Prompt {
  if (prompt.kind !== "chat") return prompt;
  const isVideo = ({ type }: { readonly type: string }): boolean => type === "video";
  const partsOf = (content: string | readonly ContentPart[]): readonly ContentPart[] =>
    typeof content === "string" ? [] : content;
  const last = prompt.messages.findLastIndex(({ content }) => partsOf(content).length > 0);
  const messages = prompt.messages.map((message, index) => {
    const { content } = message;
    if (typeof content === "string") return message;
    const sources = images === "of-message" ? [message] : index === last ? prompt.messages : [];
    const videos = sources.flatMap((source) => partsOf(source.content).filter(isVideo));
    return { ...message, content: [...content.filter((part) => !isVideo(part)), ...videos] };
  });
  return { ...prompt, messages };
}

/** The images, the pages of documents and the items of videos, in the order of the prompt. */
export function itemsOfPrompt(prompt: Prompt, videos: OpenedVideos, pages: PagesOfPrompt): readonly ItemPart[] {
  if (prompt.kind !== "chat" || (videos.size === 0 && pages.size === 0)) return imagesOfPrompt(prompt);
  return prompt.messages.flatMap(({ content }) =>
    typeof content === "string"
      ? []
      : content.flatMap((part): readonly ItemPart[] => {
          if (part.type === "text" || part.type === "document") return [];
          return part.type === "video" ? (videos.get(part)?.items ?? []) : [pages.get(part) ?? part];
        }),
  );
}

/** Tokens that an item has at least. */
export function fewestTokensOf(
  part: ItemPart,
  { processor, info }: { readonly processor: MultiModalProcessor; readonly info: ProcessingInfo },
): number {
  if (part.type === "frames" && part.options !== null) return processor.numImageTokens(part.item.video, part.options);
  return part.type === "image_embeds" ? 1 : info.minTokensPerItem;
}

export function isImagePart(part: ItemPart): part is ImagePart {
  return part.type !== "frames";
}

export function optionsOfPart(
  part: ItemPart,
  { processorOptions }: { readonly processorOptions: ProcessorOptions },
): ProcessorOptions {
  return (part.type === "frames" ? part.options : null) ?? processorOptions;
}

/** Whether a part brings its content, and not only the name of a cached one. */
export function hasContent(part: ItemPart): boolean {
  return part.type === "frames" || part.reference !== null;
}

/** Of each part. Videos name themselves. */
export function parametersOf(parts: readonly ItemPart[]): string[] {
  let numImages = 0;
  return parts.map((part) => (part.type === "frames" ? part.file.parameter : parameterOf(numImages++)));
}

/** The index counts all images of the prompt. */
export function parameterOf(index: number): string {
  return `prompt.images[${index}]`;
}
