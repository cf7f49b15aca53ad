/** Prompts of text and images in order: how they are split, and how their images become placeholders. */
import { EngineError } from "../contract/errors.ts";
import type { ContentPart, ImagePart, VideoPart } from "../contract/generation-request.ts";
import type { ImageMarkers } from "../multimodal/multimodal-processor.ts";
import type { TextRange } from "../text/added-tokens.ts";

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

/** The images of a list of parts, in order. */
export function imagesOf(parts: readonly ContentPart[]): ImagePart[] {
  return parts.filter((part): part is ImagePart => part.type === "image" || part.type === "image_embeds");
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
