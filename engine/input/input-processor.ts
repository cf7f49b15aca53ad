/** Turns a request into tokens, tensors and the positions that connect them, for the engine thread. */
import type { ImageLimits } from "../contract/config.ts";
import { EngineError, invariant } from "../contract/errors.ts";
import type { Prompt, PromptRequest, VideoPart } from "../contract/generation-request.ts";
import type { EngineRequest, ImageFeature } from "../core/engine-request.ts";
import type { HeldBytes } from "../images/fetched-bytes.ts";
import { expandPrompt } from "../multimodal/apply-prompt-updates.ts";
import type { UpdatedPrompt } from "../multimodal/apply-prompt-updates.ts";
import type { RequestTensors } from "../multimodal/held-tensors.ts";
import { noMarkers } from "../multimodal/multimodal-processor.ts";
import type { PlacedImage, ProcessorOptions } from "../multimodal/multimodal-processor.ts";
import { numberedUpdates } from "../multimodal/numbered-updates.ts";
import { numEmbeddingsIn } from "../multimodal/placeholder.ts";
import { allowedLimit } from "../multimodal/processing-info.ts";
import type { PromptPositions } from "../multimodal/prompt-positions.ts";
import { countOccurrences } from "../multimodal/sequence-search.ts";
import type { ChatTemplate } from "../text/chat-template.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { addsSpecialTokens, renderChat } from "./chat-prompt.ts";
import { createPromptText } from "./create-prompt-text.ts";
import { checkImages, checkVideos } from "./image-inputs.ts";
import type { ImageInputs } from "./image-inputs.ts";
import type { ItemRequest, LoadedItem } from "./item-loader.ts";
import { fewestTokensOf, imagesOfPrompt, itemsOfPrompt, videosBehindImages, videosOfPrompt } from "./item-parts.ts";
import type { ItemPart } from "./item-parts.ts";
import { countOutside, mayHoldFeatures, unplacedImages, wrongPlaceholders } from "./placeholder-checks.ts";
import { countingFrom, promptLimitOf, shortenExpanded, shortenUnloaded } from "./prompt-limit.ts";
import type { PromptLimit } from "./prompt-limit.ts";
import { renderParts } from "./prompt-parts.ts";
import type { RenderedPrompt } from "./prompt-parts.ts";
import { isAboutOptions, noImageProcessor, requestOptions, tooManyEmbeddings } from "./request-options.ts";
import type { OpenedVideos } from "./video-loader.ts";

export interface InputProcessorOptions {
  readonly tokenizer: Tokenizer;
  /** Null for a checkpoint without one, which rejects conversations. */
  readonly chatTemplate: ChatTemplate | null;
  /** Null for a text-only model. */
  readonly imageInputs: ImageInputs | null;
  readonly imageLimits: ImageLimits;
  /** Whether the model sees all images of a prompt, or only the last one. Default true. */
  readonly addAllImages?: boolean;
  readonly maxModelLen: number;
  /** The length of requests that are answered, if `maxModelLen` is that of texts that are only counted. */
  readonly servedModelLen?: number;
  readonly vocabSize: number;
}

/** The engine thread's input besides the caller's id, sampling parameters and seed. */
export interface ProcessedPrompt extends Pick<EngineRequest, "promptTokenIds" | "images" | "positions"> {
  /** Images of the request that the model does not see. */
  readonly numOmittedImages: number;
}

/** An image, or an item of a video, at its place in the prompt. */
type PlacedFeature = ImageFeature & Pick<PlacedImage, "videoItem">;

/** A prompt whose images are not inserted yet. */
interface TokenizedPrompt {
  readonly tokenIds: readonly number[];
  /** True if image tokens are the only images: the other text is known to contain none. */
  readonly isExact: boolean;
  /** The tokenized text; "" for a prompt of tokens. */
  readonly text: string;
}

/** A request that was checked as far as possible without its images. */
export interface BegunPrompt extends Disposable {
  /** The rendered conversation or the text of the prompt; "" for a prompt of tokens. */
  readonly text: string;
  /** The images and the items of videos. */
  readonly parts: readonly ItemPart[];
  readonly options: ProcessorOptions;
  readonly whole: TokenizedPrompt;
  /** Null if the prompt must not be shortened. */
  readonly limit: PromptLimit | null;
  /** The files of its videos, until this is disposed of; null without videos. */
  readonly held: HeldBytes | null;
}

const noVideos: OpenedVideos = new Map();

/** Of the model's length, for frames that the request leaves to the server. The rest is for text and output. */
const VIDEO_SHARE = 0.75;

/** In model lengths: the tokens of a longer text are not counted to the end before it is rejected. */
const MAX_COUNTED_LENGTHS = 4;

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
    const followImages = imageInputs?.processor.videos?.followImages === true;
    const prompt = followImages ? videosBehindImages(request.prompt) : request.prompt;
    const videoParts = videosOfPrompt(prompt);
    checkVideos(videoParts, prompt, imageInputs);
    checkImages(imagesOfPrompt(prompt), prompt, imageInputs, this.#maxImages);
    const options = this.#processorOptions(request);
    const limit = this.#promptLimit(request);
    const held = videoParts.length === 0 ? null : this.#imageInputs().loader.openBytes(request.tenant ?? "");
    try {
      const videos = held === null ? noVideos : await this.#openVideos(videoParts, request, { options, held }, signal);
      const parts = itemsOfPrompt(prompt, videos);
      const whole = await this.#tokenize(prompt, parts.length, videos, signal);
      this.#checkTokens(whole, parts, limit !== null);
      return { text: whole.text, parts, options, whole, limit, held, [Symbol.dispose]: () => held?.[Symbol.dispose]() };
    } catch (error) {
      held?.[Symbol.dispose]();
      throw held?.refused.aborted === true ? held.refused.reason : error;
    }
  }

  async #openVideos(
    parts: readonly VideoPart[],
    request: PromptRequest,
    { options, held }: { readonly options: ProcessorOptions; readonly held: HeldBytes },
    signal: AbortSignal,
  ): Promise<OpenedVideos> {
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
   * Images are fetched and processed concurrently, and new frames of videos decoded. When one fails, the others are cancelled, and no work of the request
   * is left when the promise settles. Throws EngineError `invalid_argument`, `prompt_too_long`, errors of images, or
   * `aborted`.
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
    { parts, options, whole, limit }: BegunPrompt,
    signal: AbortSignal,
    tensors: RequestTensors | null,
  ): Promise<ProcessedPrompt> {
    if (parts.length === 0) return this.#finish(whole.tokenIds, [], limit);
    const shortened = limit === null ? null : shortenUnloaded(whole.tokenIds, parts, this.#imageInputs(), limit);
    const tokenized = { ...whole, tokenIds: shortened?.tokenIds ?? whole.tokenIds };
    const kept = shortened === null ? parts : shortened.kept.flatMap((index) => parts.slice(index, index + 1));
    const numOmitted = parts.length - kept.length;
    if (kept.length === 0) return this.#finish(tokenized.tokenIds, [], limit, numOmitted);

    // One position is for the output.
    const room = this.#options.maxModelLen - 1 - (tokenized.tokenIds.length - kept.length);
    const itemRequest = { ...request, processorOptions: options, ...(limit === null && { maxNumEmbeddings: room }) };
    const items = await countingFrom(shortened?.kept[0] ?? 0, () =>
      this.#loadItems(kept, itemRequest, signal, tensors),
    );
    const expanded = await this.#expand(tokenized, { parts: kept, items }, options, signal);
    const images = this.#features(kept, items, expanded);
    this.#checkEmbeddings(images);
    return this.#finish(expanded.tokenIds, images, limit, numOmitted);
  }

  /** Null if the prompt must not be shortened. */
  #promptLimit(request: PromptRequest): PromptLimit | null {
    const { tokenizer, maxModelLen } = this.#options;
    const { prompt } = request;
    const limit = promptLimitOf(request, maxModelLen);
    const hasPrefix = (prompt.kind === "text" || prompt.kind === "parts") && prompt.addSpecialTokens;
    const prefixTokenIds = hasPrefix ? tokenizer.prefixIds : [];
    return limit && { ...limit, prefixTokenIds, decode: (tokenIds) => tokenizer.decode(tokenIds) };
  }

  /** @param numOmitted Images that are not among `images` any more. */
  #finish(
    tokenIds: readonly number[],
    images: readonly PlacedFeature[],
    limit: PromptLimit | null,
    numOmitted = 0,
  ): ProcessedPrompt {
    const { imageInputs, addAllImages = true } = this.#options;
    const markers = imageInputs?.processor.markers ?? noMarkers;
    const prompt = limit === null ? { tokenIds, images } : shortenExpanded(tokenIds, images, markers, limit);
    const { length } = prompt.tokenIds;
    this.#checkLength(length);
    const positions =
      prompt.images.length > 0
        ? imageInputs?.processor.promptPositions?.(length, prompt.images, prompt.tokenIds)
        : undefined;
    if (positions !== undefined) this.#checkPositions(positions);
    const shown = addAllImages ? prompt.images : prompt.images.slice(-1);
    return {
      promptTokenIds: prompt.tokenIds,
      images: shown.map(({ tensors, mmHash, placeholder }) => ({ tensors, mmHash, placeholder })),
      ...(positions && { positions }),
      numOmittedImages: numOmitted + images.length - shown.length,
    };
  }

  #processorOptions({ mmProcessorOptions }: PromptRequest): ProcessorOptions {
    const processor = this.#options.imageInputs?.processor ?? noImageProcessor;
    return mmProcessorOptions === undefined ? processor.options : requestOptions(processor, mmProcessorOptions);
  }

  /** Returns token ids in which every image is still one placeholder or (in token prompts) already has its features. */
  async #tokenize(
    prompt: Prompt,
    numImages: number,
    videos: OpenedVideos,
    signal: AbortSignal,
  ): Promise<TokenizedPrompt> {
    const processor = this.#options.imageInputs?.processor;
    const { tokenIds, ...rest } = await this.#encode(prompt, videos, signal);
    return { tokenIds: processor?.applyTokensOnly?.(tokenIds, numImages) ?? tokenIds, ...rest };
  }

  async #encode(prompt: Prompt, videos: OpenedVideos, signal: AbortSignal): Promise<TokenizedPrompt> {
    if (prompt.kind === "tokens") return { tokenIds: prompt.tokenIds, isExact: false, text: "" };
    const { tokenizer, imageInputs, maxModelLen } = this.#options;
    const rendered = this.#render(prompt, videos);
    const maxTokens = maxModelLen * MAX_COUNTED_LENGTHS;
    const bosToken = tokenizer.namedTokens.bos_token ?? null;
    const isWrapped = (): boolean =>
      addsSpecialTokens(rendered.text, { acceptsImages: imageInputs !== null, bosToken });
    const tokenIds = await tokenizer.encode(rendered.text, {
      addSpecialTokens: prompt.addSpecialTokens ?? isWrapped(),
      literal: rendered.literal,
      maxTokens,
      signal,
    });
    if (tokenIds === null) throw tooLong(`more than ${maxTokens}`, maxModelLen);
    return { tokenIds, isExact: prompt.kind !== "text", text: rendered.text };
  }

  #render(prompt: Exclude<Prompt, { readonly kind: "tokens" }>, videos: OpenedVideos): RenderedPrompt {
    const { chatTemplate, imageInputs } = this.#options;
    const imagePlaceholder = imageInputs?.processor.imagePlaceholder ?? null;
    switch (prompt.kind) {
      case "text":
        return { text: prompt.text, literal: [] };
      case "parts":
        return renderParts(prompt.parts, imagePlaceholder, imageInputs?.processor.markers ?? noMarkers);
      case "chat":
        return renderChat(prompt, {
          template: requireTemplate(chatTemplate),
          imagePlaceholder,
          markers: imageInputs?.processor.markers,
          ...(videos.size > 0 && {
            videos: { placeholder: null, ...imageInputs?.processor.videos, opened: videos },
          }),
          placesImagesInText: imageInputs?.processor.placesImagesInText,
        });
    }
    return prompt satisfies never;
  }

  #checkTokens({ tokenIds, isExact }: TokenizedPrompt, parts: readonly ItemPart[], mayBeShortened: boolean): void {
    const checkLength = (numTokens: number): void => {
      if (!mayBeShortened) this.#checkLength(numTokens, parts);
    };
    const { imageInputs, vocabSize } = this.#options;
    if (tokenIds.length === 0) {
      throw new EngineError("invalid_argument", "The prompt is empty.", { parameter: "prompt" });
    }
    const placeholderTokenIds = imageInputs?.processor.imagePlaceholderTokenIds ?? [];
    for (const tokenId of tokenIds) {
      if (Number.isInteger(tokenId) && tokenId >= 0 && tokenId < vocabSize) continue;
      // The placeholder of a pipeline may be outside the vocabulary. Images take its place.
      if (placeholderTokenIds.includes(tokenId)) continue;
      throw new EngineError(
        "invalid_argument",
        `Token id ${tokenId} is outside the vocabulary, whose size is ${vocabSize}.`,
        { parameter: "prompt" },
      );
    }
    if (imageInputs === null || imageInputs.processor.imagePlaceholder === null) {
      checkLength(tokenIds.length);
      return;
    }
    const { imagePlaceholder, imagePlaceholderTokenIds } = imageInputs.processor;
    const numPlaceholders = countOccurrences(tokenIds, imagePlaceholderTokenIds);
    const fewestTokens = sumOf(parts, (part) => fewestTokensOf(part, imageInputs));
    if (!isExact && parts.length > 0 && mayHoldFeatures(tokenIds, imageInputs, parts.length, fewestTokens)) {
      // The length is checked again once the images are known.
      checkLength(tokenIds.length);
      return;
    }
    checkLength(tokenIds.length + fewestTokens - parts.length * imagePlaceholderTokenIds.length);
    if (numPlaceholders === parts.length) return;
    if (!isExact && numPlaceholders < parts.length) {
      const pieces = this.#options.tokenizer.decode(tokenIds).split(imagePlaceholder);
      if (pieces.length - 1 === parts.length) return;
    }
    throw wrongPlaceholders(numPlaceholders, imagePlaceholder, parts.length);
  }

  #checkLength(numTokens: number, parts: readonly ItemPart[] = []): void {
    const { maxModelLen } = this.#options;
    // One position is for the output.
    if (numTokens >= maxModelLen) throw tooLong(String(numTokens), maxModelLen, countFrames(parts));
  }

  /** Seconds of a video may be more positions than it has tokens. */
  #checkPositions({ next }: PromptPositions): void {
    const { maxModelLen } = this.#options;
    if (next < maxModelLen) return;
    throw new EngineError(
      "prompt_too_long",
      `The prompt takes ${next} positions, because each second of its videos takes some; this model's maximum context length is ${maxModelLen} positions, of which the output needs one. Send shorter videos.`,
      { parameter: "prompt" },
    );
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

  async #expand(
    { tokenIds, isExact }: TokenizedPrompt,
    { parts, items }: { readonly parts: readonly ItemPart[]; readonly items: readonly LoadedItem[] },
    options: ProcessorOptions,
    signal: AbortSignal,
  ): Promise<UpdatedPrompt> {
    const { processor } = this.#imageInputs();
    const numPlaceholders = countOccurrences(tokenIds, processor.imagePlaceholderTokenIds);
    let numImages = 0;
    const expanded = await expandPrompt(
      tokenIds,
      items.map(({ item }, index) => {
        const isNumbered = parts[index]?.type !== "frames";
        return numberedUpdates(
          item.promptUpdates,
          (isNumbered ? processor.numberTokens?.(numImages++, options) : undefined) ?? [],
        );
      }),
      {
        promptText: createPromptText(this.#options.tokenizer, signal),
        mayBeExpanded: !isExact && mayHoldFeatures(tokenIds, this.#imageInputs(), items.length, items.length),
        mayMatchText: !isExact,
        joinTokens: processor.joinTokens,
      },
    );
    const { imagePlaceholder, imagePlaceholderTokenIds } = processor;
    const isWhole = expanded.placeholders.every((placeholder) => placeholder !== null);
    // A remaining placeholder would be treated as a feature without an image.
    const numLeft = imagePlaceholder === null ? 0 : countOutside(expanded, imagePlaceholderTokenIds);
    if (isWhole && numLeft === 0) return expanded;
    if (imagePlaceholder === null) {
      const numPlaced = expanded.placeholders.filter((placeholder) => placeholder !== null).length;
      throw new EngineError(
        "invalid_argument",
        `The prompt has places for ${numPlaced} of its ${items.length} images.`,
        { parameter: "prompt" },
      );
    }
    if (numPlaceholders === items.length) throw unplacedImages(numLeft, imagePlaceholder);
    throw wrongPlaceholders(numPlaceholders, imagePlaceholder, items.length);
  }

  /** In the order of their positions. */
  #features(
    parts: readonly ItemPart[],
    items: readonly LoadedItem[],
    { placeholders }: UpdatedPrompt,
  ): PlacedFeature[] {
    const features = items.map(({ mmHash, item: { tensors } }, index) => {
      const placeholder = placeholders[index];
      invariant(placeholder, "images without a place are rejected");
      const part = parts[index];
      const isOfVideo = part?.type === "frames" && part.isOfVideo;
      return { tensors, mmHash, placeholder, ...(isOfVideo && { videoItem: part.item }) };
    });
    return features.sort((left, right) => left.placeholder.offset - right.placeholder.offset);
  }

  /** Checks all images; new ones were counted before they were processed. */
  #checkEmbeddings(images: readonly ImageFeature[]): void {
    const { maxTokensPerItem } = this.#imageInputs().info;
    for (const { placeholder } of images) {
      const numEmbeddings = numEmbeddingsIn(placeholder);
      if (numEmbeddings <= maxTokensPerItem) continue;
      throw tooManyEmbeddings(numEmbeddings, maxTokensPerItem);
    }
  }

  #imageInputs(): ImageInputs {
    const { imageInputs } = this.#options;
    invariant(imageInputs !== null, "images for a text-only model are rejected");
    return imageInputs;
  }
}

function sumOf<Element>(elements: readonly Element[], valueOf: (element: Element) => number): number {
  return elements.reduce((sum, element) => sum + valueOf(element), 0);
}

function requireTemplate(template: ChatTemplate | null): ChatTemplate {
  if (template !== null) return template;
  throw new EngineError("invalid_argument", "This model has no chat template. Send a prompt instead of messages.", {
    parameter: "prompt.messages",
  });
}

/** LiteLLM and other clients recognise the error by OpenAI's words "this model's maximum context length is". */
function tooLong(numTokens: string, maxModelLen: number, numFrames = 0): EngineError {
  const advice = numFrames === 0 ? "" : ` It shows ${numFrames} frames of videos; ask for fewer.`;
  return new EngineError(
    "prompt_too_long",
    `The prompt has ${numTokens} tokens; this model's maximum context length is ${maxModelLen} tokens, of which the output needs one.${advice}`,
    { parameter: "prompt" },
  );
}

function countFrames(parts: readonly ItemPart[]): number {
  return sumOf(parts, (part) => (part.type === "frames" ? part.frameIndices.length : 0));
}
