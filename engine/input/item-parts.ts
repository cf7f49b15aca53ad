/** The parts of a prompt that become its items: images, and frames of videos. */
import type { ContentPart, ImagePart, Prompt, VideoPart } from "../contract/generation-request.ts";
import type { MultiModalProcessor, ProcessorOptions } from "../multimodal/multimodal-processor.ts";
import type { ProcessingInfo } from "../multimodal/processing-info.ts";
import { imagePartsOf } from "./chat-prompt.ts";
import { imagesOf, videosOf } from "./prompt-parts.ts";
import type { FramesPart, OpenedVideos } from "./video-loader.ts";

export type ItemPart = ImagePart | FramesPart;

/** In the order of the prompt. */
export function videosOfPrompt(prompt: Prompt): readonly VideoPart[] {
  if (prompt.kind === "parts") return videosOf(prompt.parts);
  if (prompt.kind !== "chat") return [];
  return prompt.messages.flatMap(({ content }) => (typeof content === "string" ? [] : videosOf(content)));
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

/** The images and the items of videos, in the order of the prompt. */
export function itemsOfPrompt(prompt: Prompt, videos: OpenedVideos): readonly ItemPart[] {
  if (prompt.kind !== "chat" || videos.size === 0) return imagesOfPrompt(prompt);
  return prompt.messages.flatMap(({ content }) =>
    typeof content === "string"
      ? []
      : content.flatMap((part): readonly ItemPart[] => {
          if (part.type === "text") return [];
          return part.type === "video" ? (videos.get(part)?.items ?? []) : [part];
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
