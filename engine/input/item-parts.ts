/** The parts of a prompt that become its items: images, and frames of videos. */
import type { ContentPart, DocumentPart, ImagePart, Prompt, VideoPart } from "../contract/generation-request.ts";
import type { MultiModalProcessor, ProcessorOptions } from "../multimodal/multimodal-processor.ts";
import type { ProcessingInfo } from "../multimodal/processing-info.ts";
import { imagePartsOf } from "./chat-prompt.ts";
import type { OpenedDocuments, OpenedPage } from "./document-loader.ts";
import { imagesOf, videosOf } from "./prompt-parts.ts";
import type { FramesPart, OpenedVideos } from "./video-loader.ts";

export type ItemPart = ImagePart | FramesPart;

/** In the order of the prompt. */
export function videosOfPrompt(prompt: Prompt): readonly VideoPart[] {
  if (prompt.kind === "parts") return videosOf(prompt.parts);
  if (prompt.kind !== "chat") return [];
  return prompt.messages.flatMap(({ content }) => (typeof content === "string" ? [] : videosOf(content)));
}

/** In the order of the prompt. */
export function documentsOfPrompt(prompt: Prompt): readonly DocumentPart[] {
  if (prompt.kind === "parts") return prompt.parts.filter((part) => part.type === "document");
  if (prompt.kind !== "chat") return [];
  return prompt.messages.flatMap(({ content }) =>
    typeof content === "string" ? [] : content.filter((part) => part.type === "document"),
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

/** In the order of the prompt. */
export function imagesOfPrompt(prompt: Prompt): readonly ImagePart[] {
  if (prompt.kind === "chat") return imagePartsOf(prompt.messages);
  return prompt.kind === "parts" ? imagesOf(prompt.parts) : (prompt.images ?? []);
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
