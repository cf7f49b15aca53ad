/** The images of a prompt, and what a model and the server's settings allow of them. */
import { EngineError } from "../contract/errors.ts";
import type { DocumentPart, ImagePart, Prompt, VideoPart } from "../contract/generation-request.ts";
import type { MultiModalProcessor } from "../multimodal/multimodal-processor.ts";
import type { ProcessingInfo } from "../multimodal/processing-info.ts";
import type { DocumentLoader } from "./document-loader.ts";
import type { ItemLoader } from "./item-loader.ts";
import type { VideoLoader } from "./video-loader.ts";

/** A model's image inputs. */
export interface ImageInputs {
  /** Token of one embedding of an image. The placeholder of a whole image may be another token. */
  readonly imageTokenId: number;
  readonly info: ProcessingInfo;
  readonly processor: MultiModalProcessor;
  readonly loader: ItemLoader;
  readonly videos: VideoLoader;
  readonly documents: DocumentLoader;
  /** Whether requests may contain embeddings. */
  readonly enableMmEmbeds: boolean;
}

const imagesParameters = {
  chat: "prompt.messages",
  text: "prompt.images",
  tokens: "prompt.images",
  parts: "prompt",
} as const satisfies Record<Prompt["kind"], string>;

/**
 * Throws EngineError `invalid_argument` or `too_many_videos`.
 *
 * @param imageInputs Null for a text-only model.
 */
export function checkVideos(parts: readonly VideoPart[], prompt: Prompt, imageInputs: ImageInputs | null): void {
  if (parts.length === 0) return;
  const parameter = imagesParameters[prompt.kind];
  if (imageInputs === null) {
    throw new EngineError("invalid_argument", "This model does not accept videos.", { parameter });
  }
  if (prompt.kind !== "chat") {
    throw new EngineError("invalid_argument", "Only conversations can have videos.", { parameter });
  }
  const { maxVideos } = imageInputs.videos;
  if (parts.length <= maxVideos) return;
  throw new EngineError(
    "too_many_videos",
    `The prompt has ${parts.length} videos; the limit is ${maxVideos}, set by the server.`,
    { parameter, setting: "maxVideosPerPrompt" },
  );
}

/**
 * Throws EngineError `invalid_argument`.
 *
 * @param imageInputs Null for a text-only model.
 */
export function checkDocuments(parts: readonly DocumentPart[], prompt: Prompt, imageInputs: ImageInputs | null): void {
  if (parts.length === 0) return;
  const parameter = imagesParameters[prompt.kind];
  if (imageInputs === null) {
    const message = "This model does not accept images, and so no documents.";
    throw new EngineError("invalid_argument", message, { parameter });
  }
  if (prompt.kind === "chat") return;
  throw new EngineError("invalid_argument", "Only conversations can have documents.", { parameter });
}

export interface ImageCounts {
  /** Of a prompt. */
  readonly maxImages: number;
  /** Documents that were not read yet: each has a page at least. Default 0. */
  readonly numUnread?: number;
  /** Whether pages of documents are among the images. Default: whether there are unread ones. */
  readonly hasPages?: boolean;
}

/**
 * Throws EngineError `invalid_argument` or `too_many_images`.
 *
 * @param imageInputs Null for a text-only model.
 */
export function checkImages(
  parts: readonly ImagePart[],
  prompt: Prompt,
  imageInputs: ImageInputs | null,
  { maxImages, numUnread = 0, hasPages = numUnread > 0 }: ImageCounts,
): void {
  const numImages = parts.length + numUnread;
  if (numImages === 0) return;
  const parameter = imagesParameters[prompt.kind];
  if (imageInputs === null) {
    throw new EngineError("invalid_argument", "This model does not accept images.", { parameter });
  }
  const { info, enableMmEmbeds } = imageInputs;
  const numEmbeddings = parts.filter(({ type }) => type === "image_embeds").length;
  // As in vLLM, a limit of 0 is one of pictures, so that a server of embeddings needs no vision encoder.
  const isUnlimited = enableMmEmbeds && maxImages === 0 && numEmbeddings === numImages;
  if (numImages > maxImages && !isUnlimited) {
    const { image: supported = 0 } = info.supportedLimits;
    const isSet = supported === null || numImages <= supported;
    const images = hasPages ? "images and pages of documents, or more" : "images";
    const hint = hasPages ? " Choose fewer pages by documentPages.firstPage and documentPages.lastPage." : "";
    throw new EngineError(
      "too_many_images",
      `The prompt has ${numImages} ${images}; the limit is ${maxImages}, set by ${isSet ? "the server" : "this model"}.${hint}`,
      { parameter, ...(isSet && { setting: "maxImagesPerPrompt" }) },
    );
  }
  if (numEmbeddings > 0 && !enableMmEmbeds) {
    throw new EngineError("invalid_argument", "This server does not accept image embeddings, only images.", {
      parameter,
      setting: "enableMmEmbeds",
    });
  }
  if (numEmbeddings > 0 && numEmbeddings < parts.length) {
    throw new EngineError(
      "invalid_argument",
      `The prompt has ${numEmbeddings} image embeddings among its ${parts.length} images; use either images or embeddings.`,
      { parameter },
    );
  }
}
