/**
 * What a model and the server's settings allow of the images, videos and documents of a prompt: their number, before one
 * is fetched, and the work and the room that those take which no cache has, before one is decoded.
 */
import type { ImageLimits } from "../contract/config.ts";
import { defaultDecodeLimits } from "../contract/default-limits.ts";
import { aboutParameter, EngineError } from "../contract/errors.ts";
import type { DocumentPart, ImagePart, Prompt, VideoPart } from "../contract/generation-request.ts";
import { shown } from "../excerpt.ts";
import { decodeCostOf } from "../images/decode-cost.ts";
import type { PictureHeader } from "../images/picture-header.ts";
import type { MultiModalProcessor, ProcessorOptions } from "../multimodal/multimodal-processor.ts";
import type { ProcessingInfo } from "../multimodal/processing-info.ts";
import { tooManyEmbeddings } from "./request-options.ts";

/** The parts of `ImageInputs` that limit the items of a prompt. */
interface AllowedItems {
  readonly info: ProcessingInfo;
  readonly videos: { readonly maxVideos: number };
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
export function checkVideos(parts: readonly VideoPart[], prompt: Prompt, imageInputs: AllowedItems | null): void {
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
export function checkDocuments(parts: readonly DocumentPart[], prompt: Prompt, imageInputs: AllowedItems | null): void {
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
  imageInputs: AllowedItems | null,
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

export interface NewItem {
  readonly header: PictureHeader;
  /** Of the image processor. */
  readonly options: ProcessorOptions;
  /** Names it in errors. */
  readonly parameter: string;
}

/** Throws EngineError `image_too_large`. */
export function checkWork(
  items: readonly NewItem[],
  { maxRequestDecodeCost }: Pick<ImageLimits, "maxRequestDecodeCost">,
): void {
  const maxCost = maxRequestDecodeCost ?? defaultDecodeLimits.maxRequestDecodeCost;
  const cost = items.reduce((sum, { header }) => sum + decodeCostOf(header), 0);
  if (cost <= maxCost) return;
  throw new EngineError(
    "image_too_large",
    `Decoding the ${items.length} new images of the prompt costs as much as ${cost} pixels of plain RGB; the limit is ${maxCost}. Send fewer or smaller images.`,
    { parameter: "prompt.images", setting: "maxRequestDecodeCost" },
  );
}

/**
 * Processing items is useless if the prompt has no room for them. Throws EngineError `invalid_argument`,
 * `prompt_too_long`, and those of `MultiModalProcessor.numImageTokens`.
 *
 * @param maxNumEmbeddings For which the prompt has room.
 */
export function checkEmbeddings(
  items: readonly NewItem[],
  { processor, info }: { readonly processor: MultiModalProcessor; readonly info: ProcessingInfo },
  maxNumEmbeddings: number,
): void {
  let numEmbeddings = 0;
  for (const { header, options, parameter } of items) {
    const { width, height } = header.shownSize;
    const count = about(parameter, () => processor.numImageTokens(header.shownSize, options));
    if (!Number.isSafeInteger(count) || count < 0) {
      throw new EngineError(
        "internal",
        `The model's numImageTokens returned ${shown(count)} for an image of ${width} x ${height} pixels; expected the number of its embeddings.`,
      );
    }
    if (count > info.maxTokensPerItem) throw tooManyEmbeddings(count, info, options === processor.options);
    numEmbeddings += count;
  }
  if (numEmbeddings <= maxNumEmbeddings) return;
  throw new EngineError(
    "prompt_too_long",
    `The new images of the prompt have ${numEmbeddings} embeddings; next to its text there is room for ${maxNumEmbeddings}. Send fewer or smaller images.`,
    { parameter: "prompt" },
  );
}

function about<Result>(parameter: string, run: () => Result): Result {
  try {
    return run();
  } catch (error) {
    throw error instanceof EngineError ? aboutParameter(error, parameter) : error;
  }
}
