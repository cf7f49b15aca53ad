/** Converts the parts of messages: texts, images, videos and documents. */
import type { ContentPart, ImagePart, VideoPart } from "../../engine/index.ts";
import type { InlineImages } from "../settings/images.ts";
import { splitInlineImages } from "./inline-images.ts";
import { toReference } from "./references.ts";
import type { ChatMessageFields } from "./schemas/chat-completion-request.ts";
import { documentField, documentReference } from "./schemas/document-parts.ts";
import { imageField, imageReference } from "./schemas/image-parts.ts";

interface PlacedPart {
  readonly part: ContentPart;
  /** The field of the body that contains the part. */
  readonly path: string;
}

/** The parts of a message. A text with pictures in it gives several parts of one path. */
export function partsOf({ content }: ChatMessageFields, message: number, inlineImages: InlineImages): PlacedPart[] {
  const path = `messages[${message}].content`;
  const place = (part: ContentPart, partPath: string): PlacedPart[] => {
    if (part.type !== "text" || inlineImages !== "all") return [{ part, path: partPath }];
    const split = splitInlineImages(part.text, partPath) ?? [part];
    return split.map((inText) => ({ part: inText, path: partPath }));
  };
  if (typeof content !== "object" || content === null) return place({ type: "text", text: content ?? "" }, path);
  return content.flatMap((part, index) => place(toContentPart(part), `${path}[${index}].${contentField(part)}`));
}

type PartFields = Exclude<NonNullable<ChatMessageFields["content"]>, string>[number];

/** The field of a part that contains its content. */
export function contentField(part: PartFields): string {
  switch (part.type) {
    case "input_text":
    case "output_text":
    case "refusal":
      return "text";
    case "input_image":
      return imageField(part);
    case "input_video":
      return "video_url";
    case "input_file":
      return documentField(part);
    case "text":
    case "image_url":
    case "image_embeds":
    case "video_url":
    case "video":
    case "file":
    case "document_url":
      return part.type;
  }
}

export function toContentPart(part: PartFields): ContentPart {
  switch (part.type) {
    case "text":
    case "input_text":
    case "output_text":
      return { type: "text", text: part.text };
    case "refusal":
      return { type: "text", text: part.refusal };
    case "image_url":
      return toImagePart(part.image_url?.url, part.uuid);
    case "input_image":
      return toImagePart(imageReference(part), part.uuid);
    case "image_embeds":
      return toEmbeddingsPart(part.image_embeds);
    case "video_url":
    case "input_video":
      return toVideoPart(part.video_url?.url, part.uuid);
    case "video":
      return toVideoPart(part.video, part.uuid);
    case "file":
      return { type: "document", reference: documentReference(part.file) };
    case "input_file":
      return { type: "document", reference: documentReference(part) };
    case "document_url":
      return { type: "document", reference: part.document_url.url };
  }
}

function toEmbeddingsPart(given: Extract<PartFields, { type: "image_embeds" }>["image_embeds"]): ImagePart {
  if (typeof given === "string") return { type: "image_embeds", reference: toReference(given, "") };
  const { image_embeds: file, image_grid_thw: grid } = given;
  const reference = toReference(file, "");
  if (!grid) return { type: "image_embeds", reference };
  const [numTimes = 1, numRows = 1, numColumns = 1] = grid;
  return { type: "image_embeds", reference, grid: [numTimes, numRows, numColumns] };
}

function toImagePart(reference: string | null | undefined, uuid: string | null | undefined): ImagePart {
  return { type: "image", reference: reference ?? null, ...(typeof uuid === "string" && { uuid }) };
}

function toVideoPart(
  reference: string | readonly string[] | null | undefined,
  uuid: string | null | undefined,
): VideoPart {
  return { type: "video", reference: reference ?? null, ...(typeof uuid === "string" && { uuid }) };
}
