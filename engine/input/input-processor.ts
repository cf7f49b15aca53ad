/** Turns a request into tokens, tensors and the positions that connect them, for the engine thread. */
import type { ImageLimits } from "../contract/config.ts";
import { EngineError, invariant } from "../contract/errors.ts";
import type { DocumentPart, PromptRequest, VideoPart } from "../contract/generation-request.ts";
import type { EngineRequest } from "../core/engine-request.ts";
import type { HeldBytes } from "../images/fetched-bytes.ts";
import type { RequestTensors } from "../multimodal/held-tensors.ts";
import { noMarkers } from "../multimodal/multimodal-processor.ts";
import type { ProcessorOptions } from "../multimodal/multimodal-processor.ts";
import { allowedLimit } from "../multimodal/processing-info.ts";
import type { OpenedDocuments } from "./document-loader.ts";
import type { ImageInputs } from "./image-inputs.ts";
import { checkDocuments, checkImages, checkVideos } from "./item-checks.ts";
import type { ItemRequest, LoadedItem } from "./item-loader.ts";
import { placeItems } from "./place-items.ts";
import type { PlacedFeature, PromptItem } from "./place-items.ts";
import { checkJoinedImages, checkLength, checkPositions } from "./prompt-length.ts";
import { countingFrom, promptLimitOf, shortenExpanded, shortenUnloaded } from "./prompt-limit.ts";
import type { PromptLimit } from "./prompt-limit.ts";
import {
  documentsOfPrompt,
  imagesOfPrompt,
  itemsOfPrompt,
  videosBehindImages,
  videosOfPrompt,
  withPages,
} from "./prompt-parts.ts";
import type { ItemPart } from "./prompt-parts.ts";
import { isAboutOptions, noImageProcessor, requestOptions } from "./request-options.ts";
import { checkTokens } from "./token-checks.ts";
import { createPromptText, tokenizePrompt } from "./tokenize-prompt.ts";
import type { PromptTokenizing, TokenizedPrompt } from "./tokenize-prompt.ts";
import type { OpenedVideos } from "./video-loader.ts";

export interface InputProcessorOptions extends PromptTokenizing {
  readonly imageLimits: ImageLimits;
  /** Whether the model sees all images of a prompt, or only the last one. Default true. */
  readonly addAllImages?: boolean;
  /** The length of requests that are answered, if `maxModelLen` is that of texts that are only counted. */
  readonly servedModelLen?: number;
  /** Tokens from the first image to the last one, for models that join them; see `DecoderShape`. Default: any number. */
  readonly maxJoinedTokens?: number;
  readonly vocabSize: number;
}

/** The engine thread's input besides the caller's id, sampling parameters and seed. */
export interface ProcessedPrompt extends Pick<EngineRequest, "promptTokenIds" | "positions"> {
  /** In the order of their placeholders. */
  readonly images: readonly PromptItem[];
  /** Images of the request that the model does not see. */
  readonly numOmittedImages: number;
}

/** A request that was checked as far as possible without its images. */
export interface BegunPrompt extends Disposable {
  /** The rendered conversation or the text of the prompt; "" for a prompt of tokens. */
  readonly text: string;
  /** The images and the items of videos. */
  readonly parts: readonly ItemPart[];
  /** Of the image processor, with the request's changes. */
  readonly options: ProcessorOptions;
  readonly tokenized: TokenizedPrompt;
  /** Null if the prompt must not be shortened. */
  readonly limit: PromptLimit | null;
  /** The files of its videos and documents, until this is disposed of; null without any. */
  readonly held: HeldBytes | null;
}

const noVideos: OpenedVideos = new Map();
const noDocuments: OpenedDocuments = new Map();

/** Of the model's length, for frames that the request leaves to the server. The rest is for text and output. */
const VIDEO_SHARE = 0.75;

export class InputProcessor {
  readonly #options: InputProcessorOptions;
  /** Of a prompt. */
  readonly #maxImages: number;

  constructor(options: InputProcessorOptions) {
    this.#options = options;
    const { imageInputs, imageLimits } = options;
    this.#maxImages =
      imageInputs === null ? 0 : allowedLimit(imageInputs.info, "image", imageLimits.maxImagesPerPrompt);
  }

  /** Begins to count the tensors of a request's images; null for a text-only model. */
  openTensors({ tenant = "" }: Pick<PromptRequest, "tenant">): RequestTensors | null {
    return this.#options.imageInputs?.loader.openTensors(tenant) ?? null;
  }

  /** `begin` and `complete`, with their errors. */
  async process(
    request: PromptRequest,
    signal: AbortSignal,
    tensors: RequestTensors | null = null,
  ): Promise<ProcessedPrompt> {
    using begun = await this.begin(request, signal);
    return await this.complete(request, begun, signal, tensors);
  }

  /**
   * Rejects everything that can be rejected without an image. Throws EngineError `invalid_argument`, `prompt_too_long`,
   * `too_many_images` or `aborted`.
   */
  async begin(request: PromptRequest, signal: AbortSignal): Promise<BegunPrompt> {
    const { imageInputs } = this.#options;
    const followImages = imageInputs?.processor.videos?.followImages;
    const given = followImages === undefined ? request.prompt : videosBehindImages(request.prompt, followImages);
    const videoParts = videosOfPrompt(given);
    const documentParts = documentsOfPrompt(given);
    checkVideos(videoParts, given, imageInputs);
    checkDocuments(documentParts, given, imageInputs);
    const maxImages = this.#maxImages;
    const showsPages = documentParts.length > 0 && imageInputs?.documents.showsImages(request) !== false;
    const numUnread = showsPages ? documentParts.length : 0;
    checkImages(imagesOfPrompt(given), given, imageInputs, { maxImages, numUnread });
    const options = this.#processorOptions(request);
    const limit = request.truncatePromptTokens === undefined ? null : promptLimitOf(request, this.#options);
    const hasFiles = videoParts.length > 0 || documentParts.length > 0;
    const held = hasFiles ? this.#imageInputs().loader.openBytes(request.tenant ?? "") : null;
    try {
      const documents = held === null ? noDocuments : await this.#openDocuments(documentParts, request, held, signal);
      const { prompt, pages } = withPages(given, documents);
      if (pages.size > 0) checkImages(imagesOfPrompt(prompt), prompt, imageInputs, { maxImages, hasPages: true });
      const ofPages = { ...request, prompt };
      const videos = held === null ? noVideos : await this.#openVideos(videoParts, ofPages, { options, held }, signal);
      const parts = itemsOfPrompt(prompt, videos, pages);
      const tokenized = await tokenizePrompt(prompt, parts.length, videos, this.#options, signal);
      checkTokens(tokenized, parts, limit !== null, this.#options);
      const { text } = tokenized;
      return { text, parts, options, tokenized, limit, held, [Symbol.dispose]: () => held?.[Symbol.dispose]() };
    } catch (error) {
      held?.[Symbol.dispose]();
      throw held?.refused.aborted === true ? held.refused.reason : error;
    }
  }

  async #openDocuments(
    parts: readonly DocumentPart[],
    request: PromptRequest,
    held: HeldBytes,
    signal: AbortSignal,
  ): Promise<OpenedDocuments> {
    if (parts.length === 0) return noDocuments;
    return this.#imageInputs().documents.open(parts, request, this.#maxImages, held, signal);
  }

  async #openVideos(
    parts: readonly VideoPart[],
    request: PromptRequest,
    { options, held }: { readonly options: ProcessorOptions; readonly held: HeldBytes },
    signal: AbortSignal,
  ): Promise<OpenedVideos> {
    if (parts.length === 0) return noVideos;
    const { videos, info, processor } = this.#imageInputs();
    const supported = info.supportedLimits.image ?? null;
    const isLimited = processor.videos === undefined && supported !== null;
    const share = {
      maxFrames: isLimited ? supported - imagesOfPrompt(request.prompt).length : Number.POSITIVE_INFINITY,
      maxTokens: Math.floor((this.#options.servedModelLen ?? this.#options.maxModelLen) * VIDEO_SHARE),
    };
    return videos.open(parts, { ...request, processorOptions: options }, share, held, signal);
  }

  /**
   * Images are fetched and processed concurrently, and new frames of videos decoded. When one fails, the others are
   * cancelled, and no work of the request is left when the promise settles. Throws EngineError `invalid_argument`,
   * `prompt_too_long`, errors of images, or `aborted`.
   *
   * @param tensors Counts those of the images. The caller ends the request if it is refused.
   */
  async complete(
    request: PromptRequest,
    begun: BegunPrompt,
    signal: AbortSignal,
    tensors: RequestTensors | null = null,
  ): Promise<ProcessedPrompt> {
    const { held } = begun;
    if (held === null) return this.#complete(request, begun, signal, tensors);
    try {
      return await this.#complete(request, begun, AbortSignal.any([signal, held.refused]), tensors);
    } catch (error) {
      throw held.refused.aborted ? held.refused.reason : error;
    }
  }

  async #complete(
    request: PromptRequest,
    { parts, options, tokenized, limit }: BegunPrompt,
    signal: AbortSignal,
    tensors: RequestTensors | null,
  ): Promise<ProcessedPrompt> {
    if (parts.length === 0) return this.#finish(tokenized.tokenIds, [], limit);
    const shortened = limit === null ? null : shortenUnloaded(tokenized.tokenIds, parts, this.#imageInputs(), limit);
    const { tokenIds } = shortened ?? tokenized;
    const kept = shortened === null ? parts : shortened.kept.flatMap((index) => parts.slice(index, index + 1));
    const numOmitted = parts.length - kept.length;
    if (kept.length === 0) return this.#finish(tokenIds, [], limit, numOmitted);

    // One position is for the output.
    const room = this.#options.maxModelLen - 1 - (tokenIds.length - kept.length);
    const itemRequest = { ...request, processorOptions: options, ...(limit === null && { maxNumEmbeddings: room }) };
    const load = () => this.#loadItems(kept, itemRequest, signal, tensors);
    const items = await (shortened === null ? load() : countingFrom(shortened.kept[0] ?? 0, load));
    const { tokenizer, vocabSize } = this.#options;
    const placed = await placeItems(
      { ...tokenized, tokenIds },
      { omitted: parts.slice(0, shortened?.kept[0] ?? 0), parts: kept, items },
      { options, vocabSize, imageInputs: this.#imageInputs(), promptText: createPromptText(tokenizer, signal) },
    );
    return this.#finish(placed.tokenIds, placed.images, limit, numOmitted, kept);
  }

  /**
   * @param numOmitted Images that are not among `images` any more.
   * @param parts For the error about a prompt that is too long.
   */
  #finish(
    tokenIds: readonly number[],
    images: readonly PlacedFeature[],
    limit: PromptLimit | null,
    numOmitted = 0,
    parts: readonly ItemPart[] = [],
  ): ProcessedPrompt {
    const { imageInputs, addAllImages = true, maxModelLen } = this.#options;
    const markers = imageInputs?.processor.markers ?? noMarkers;
    const prompt = limit === null ? { tokenIds, images } : shortenExpanded(tokenIds, images, markers, limit);
    const { length } = prompt.tokenIds;
    checkLength(length, maxModelLen, parts);
    const positions =
      prompt.images.length > 0
        ? imageInputs?.processor.promptPositions?.(length, prompt.images, prompt.tokenIds)
        : undefined;
    if (positions !== undefined) checkPositions(positions, length, maxModelLen);
    const shown = addAllImages ? prompt.images : prompt.images.slice(-1);
    checkJoinedImages(shown, this.#options.maxJoinedTokens ?? Infinity);
    return {
      promptTokenIds: prompt.tokenIds,
      images: shown.map(({ tensors, mmHash, placeholder, modality }) => ({ tensors, mmHash, placeholder, modality })),
      ...(positions && { positions }),
      numOmittedImages: numOmitted + images.length - shown.length,
    };
  }

  #processorOptions({ mmProcessorOptions }: PromptRequest): ProcessorOptions {
    const processor = this.#options.imageInputs?.processor ?? noImageProcessor;
    return mmProcessorOptions === undefined ? processor.options : requestOptions(processor, mmProcessorOptions);
  }

  /** Unsupported options are the request's error if the request changed them. */
  async #loadItems(
    parts: readonly ItemPart[],
    request: ItemRequest,
    signal: AbortSignal,
    tensors: RequestTensors | null,
  ): Promise<readonly LoadedItem[]> {
    const { processor, loader } = this.#imageInputs();
    try {
      return await loader.load(parts, request, signal, tensors);
    } catch (error) {
      if (!isAboutOptions(error) || request.processorOptions === processor.options) throw error;
      throw new EngineError(
        "invalid_argument",
        `The image processor cannot apply the request's options: ${error.message}`,
        { cause: error, parameter: "mmProcessorOptions" },
      );
    }
  }

  #imageInputs(): ImageInputs {
    const { imageInputs } = this.#options;
    invariant(imageInputs !== null, "images for a text-only model are rejected");
    return imageInputs;
  }
}
