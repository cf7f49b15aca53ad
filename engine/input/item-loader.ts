/** From the images of a request to items ready for the model: fetched and processed only where no cache has them. */
import { aboutParameter, EngineError, invariant } from "../contract/errors.ts";
import { decodeCostOf, defaultDecodeLimits } from "../images/decode-cost.ts";
import { canTellUnchanged, fetchImageIfChanged } from "../images/fetch-image.ts";
import { tooManyEmbeddings } from "./request-options.ts";
import { sourceCacheKey } from "../images/source-cache.ts";
import { allOrNone } from "../multimodal/all-or-none.ts";
import { computeMmHash, contentHashOf } from "../multimodal/hasher.ts";
import { parseImageEmbeddings } from "../multimodal/image-embeddings.ts";
import { processImages, toEmbeddingItems } from "../multimodal/process-items.ts";
import type { ImageLimits } from "../contract/config.ts";
import type { GenerationRequest, ImagePart } from "../contract/generation-request.ts";
import type { FetchedImage, ImageSource } from "../images/image-source.ts";
import type { KnownImage } from "../images/source-cache.ts";
import type { HashedItem } from "../multimodal/hasher.ts";
import type {
  EncodedImage,
  MultiModalProcessor,
  PixelProcessor,
  ProcessorOptions,
} from "../multimodal/multimodal-processor.ts";
import type { ProcessedItem } from "../multimodal/processed-item.ts";
import type { ProcessingInfo } from "../multimodal/processing-info.ts";
import type { PromptText } from "../multimodal/prompt-text.ts";

/** Looks items up by `mmHash` and has those that are missing processed as one batch, once for all who want them. */
export interface ItemCache {
  /** By position; null for those that would have to be processed. Never rejects. */
  getMany(mmHashes: readonly string[]): Promise<readonly (ProcessedItem | null)[]>;
  getOrProcess(
    mmHashes: readonly string[],
    processMissing: (missing: readonly string[]) => Promise<readonly ProcessedItem[]>,
    signal: AbortSignal,
  ): Promise<readonly ProcessedItem[]>;
}

/** What sources said of images; never rejects. */
export interface SourceCache {
  getMany(keys: readonly string[]): Promise<readonly (KnownImage | null)[]>;
  setMany(entries: readonly { readonly key: string; readonly value: KnownImage }[]): void;
}

export interface ItemCaches {
  readonly processor: ItemCache;
  readonly source: SourceCache;
}

export interface ItemLoaderOptions {
  readonly processor: MultiModalProcessor;
  readonly info: ProcessingInfo;
  readonly pixels: Pick<PixelProcessor, "inspect">;
  readonly sources: readonly ImageSource[];
  readonly caches: ItemCaches;
  readonly limits: ImageLimits;
  readonly promptText: PromptText;
  /** Of the built model; part of every item's hash. */
  readonly modelContentHash: string;
  /** Width of the decoder, and so of embeddings. */
  readonly hiddenSize: number;
}

export interface LoadedItem {
  readonly mmHash: string;
  readonly item: ProcessedItem;
}

interface IdentifiedImage {
  readonly mmHash: string;
  /** Null where it is still to be looked up or processed. */
  readonly item: ProcessedItem | null;
}

interface KnownItem extends IdentifiedImage {
  /** Of the source, for the bytes that the item was made of. */
  readonly validator: string;
  readonly item: ProcessedItem;
}

type InspectedImage = EncodedImage & Required<Pick<EncodedImage, "header">>;

/** The request an image is loaded for. */
export interface ItemRequest extends Pick<GenerationRequest, "tenant" | "cacheSalt"> {
  /** The checkpoint's with the request's changes. */
  readonly processorOptions: ProcessorOptions;
  /** Most embeddings that the prompt has room for; left out, any number. */
  readonly maxNumEmbeddings?: number;
}

export class ItemLoader {
  readonly #options: ItemLoaderOptions;

  constructor(options: ItemLoaderOptions) {
    this.#options = options;
  }

  /**
   * In the order of the parts, which are all images or all embeddings. The first failure cancels the rest, which have
   * ended when this rejects: with errors of images (`parameter` is `prompt.images[index]`) or `aborted`.
   */
  async load(parts: readonly ImagePart[], request: ItemRequest, signal: AbortSignal): Promise<readonly LoadedItem[]> {
    try {
      return parts[0]?.type === "image_embeds"
        ? await this.#loadEmbeddings(parts, request, signal)
        : await this.#loadImages(parts, request, signal);
    } catch (error) {
      if (signal.aborted) throw new EngineError("aborted", "The request was aborted.", { cause: signal.reason });
      throw error;
    }
  }

  async #loadImages(
    parts: readonly ImagePart[],
    request: ItemRequest,
    signal: AbortSignal,
  ): Promise<readonly LoadedItem[]> {
    const { caches, processor, promptText } = this.#options;
    const known = await this.#knownItems(parts, request);
    /** Bytes that had to be fetched to know which image it is. */
    const fetched: (EncodedImage | undefined)[] = [];
    const identified = await allOrNone<ImagePart, IdentifiedImage>(
      parts,
      async (part, either, index) => {
        const uuid = part.type === "image" ? part.uuid : undefined;
        if (uuid !== undefined) {
          const named = { kind: "uuid", tenant: request.tenant ?? "", uuid } as const;
          return { mmHash: this.#hash("image", named, request), item: null };
        }
        const knownItem = known[index];
        const answer = await this.#fetchIfChanged(part, index, knownItem?.validator ?? null, either);
        if (answer.kind === "unchanged") {
          invariant(knownItem !== null, "an image without a cached source cannot be unchanged");
          return knownItem;
        }
        fetched[index] = { bytes: answer.bytes, parameter: parameterOf(index) };
        const contentHash = await this.#remember(part, index, answer, request);
        return { mmHash: this.#hash("image", { kind: "content", contentHash }, request), item: null };
      },
      signal,
    );
    const mmHashes = identified.map(({ mmHash }) => mmHash);
    const processMissing = async (missing: readonly string[]): Promise<readonly ProcessedItem[]> => {
      const images = await allOrNone(
        missing,
        async (mmHash, either) => {
          const indices = identified.flatMap(({ item, mmHash: other }, at) =>
            item === null && other === mmHash ? [at] : [],
          );
          // Of several of one uuid any may bring the image.
          const index = indices.find((at) => parts[at].reference !== null) ?? indices[0];
          invariant(index !== undefined, "a cache requests only images that are missing");
          return this.#inspect(fetched[index] ?? (await this.#fetch(parts[index], index, either)), request, either);
        },
        signal,
      );
      this.#checkWork(images);
      this.#checkEmbeddings(images, request);
      return processImages(processor, images, { options: request.processorOptions, promptText, signal });
    };
    const wanted = identified.filter(({ item }) => item === null).map(({ mmHash }) => mmHash);
    const found = (await caches.processor.getOrProcess(wanted, processMissing, signal)).values();
    return identified.map(({ item }, index) => ({ mmHash: mmHashes[index], item: item ?? found.next().value! }));
  }

  /** Not cached: they are what a cache would hold, and came with the request. */
  async #loadEmbeddings(
    parts: readonly ImagePart[],
    request: ItemRequest,
    signal: AbortSignal,
  ): Promise<readonly LoadedItem[]> {
    const { processor, info, hiddenSize, promptText } = this.#options;
    const limits = { hiddenSize, maxNumEmbeddings: info.maxTokensPerItem };
    const loaded = await allOrNone(
      parts,
      async (part, either, index) => {
        const file = await this.#fetch(part, index, either);
        const contentHash = await contentHashOf(file.bytes);
        const mmHash = this.#hash("image_embeds", { kind: "content", contentHash }, request);
        return { mmHash, embeddings: parseImageEmbeddings(file, limits) };
      },
      signal,
    );
    const embeddings = loaded.map((item) => item.embeddings);
    const items = await toEmbeddingItems(processor, embeddings, {
      options: request.processorOptions,
      promptText,
    });
    return items.map((item, index) => ({ mmHash: loaded[index].mmHash, item }));
  }

  /**
   * By part: the item its source may tell to be unchanged, held from here on, as it may leave the cache before the source
   * has answered and its bytes may be others when they are fetched after all. Null where source or cache has nothing.
   */
  async #knownItems(parts: readonly ImagePart[], request: ItemRequest): Promise<readonly (KnownItem | null)[]> {
    const { caches } = this.#options;
    const keys = await Promise.all(parts.map((part, index) => this.#sourceKey(part, index, request)));
    const known = await getSome(caches.source, keys);
    const mmHashes = known.map((image) =>
      image === null ? null : this.#hash("image", { kind: "content", contentHash: image.contentHash }, request),
    );
    const items = await getSome(caches.processor, mmHashes);
    return items.map((item, index) =>
      item === null ? null : { item, mmHash: mmHashes[index]!, validator: known[index]!.validator },
    );
  }

  /** Null where the source cannot tell an image that is unchanged, or a uuid tells the image anyway. */
  async #sourceKey(part: ImagePart, index: number, { tenant = "", cacheSalt }: ItemRequest): Promise<string | null> {
    const isNamed = part.type === "image" && part.uuid !== undefined;
    if (part.reference === null || isNamed) return null;
    const { reference } = part;
    const isTold = await namingImage(index, () => canTellUnchanged(this.#options.sources, reference));
    return isTold ? sourceCacheKey(reference, JSON.stringify([tenant, cacheSalt ?? null])) : null;
  }

  /** The hash of the image's bytes, which the source cache is told. */
  async #remember(
    part: ImagePart,
    index: number,
    { bytes, validator }: Extract<FetchedImage, { readonly kind: "fetched" }>,
    request: ItemRequest,
  ): Promise<string> {
    const contentHash = await contentHashOf(bytes);
    const key = await this.#sourceKey(part, index, request);
    if (key !== null && validator !== null) {
      this.#options.caches.source.setMany([{ key, value: { validator, contentHash } }]);
    }
    return contentHash;
  }

  async #fetch(part: ImagePart, index: number, signal: AbortSignal): Promise<EncodedImage> {
    const answer = await this.#fetchIfChanged(part, index, null, signal);
    invariant(answer.kind === "fetched", "an image without a validator is fetched");
    return { bytes: answer.bytes, parameter: parameterOf(index) };
  }

  /** Reads the header alone, so that a request is refused for what it would cost before any of that is spent. */
  async #inspect(image: EncodedImage, request: ItemRequest, signal: AbortSignal): Promise<InspectedImage> {
    const owned = { ...image, owner: { tenant: request.tenant ?? "", request } };
    return { ...owned, header: await this.#options.pixels.inspect(owned, signal) };
  }

  /** Of images that have to be processed; those that are known cost nothing. */
  #checkWork(images: readonly InspectedImage[]): void {
    const { maxRequestDecodeCost = defaultDecodeLimits.maxRequestDecodeCost } = this.#options.limits;
    const cost = images.reduce((sum, { header }) => sum + decodeCostOf(header), 0);
    if (cost <= maxRequestDecodeCost) return;
    throw new EngineError(
      "image_too_large",
      `Decoding the ${images.length} new images of the prompt costs as much as ${cost} pixels of plain RGB; the limit is ${maxRequestDecodeCost}. Send fewer or smaller images.`,
      { parameter: "prompt.images", setting: "maxRequestDecodeCost" },
    );
  }

  /** Of images that have to be processed, which is worth nothing where the prompt has no room for them. */
  #checkEmbeddings(images: readonly InspectedImage[], request: ItemRequest): void {
    const { processor, info } = this.#options;
    const { processorOptions, maxNumEmbeddings = Number.POSITIVE_INFINITY } = request;
    let numEmbeddings = 0;
    for (const { header, parameter } of images) {
      const count = about(parameter, () => processor.numImageTokens(header.shownSize, processorOptions));
      if (count > info.maxTokensPerItem) throw tooManyEmbeddings(count, info.maxTokensPerItem);
      numEmbeddings += count;
    }
    if (numEmbeddings <= maxNumEmbeddings) return;
    throw new EngineError(
      "prompt_too_long",
      `The new images of the prompt have ${numEmbeddings} embeddings; next to its text there is room for ${maxNumEmbeddings}.`,
      { parameter: "prompt" },
    );
  }

  #fetchIfChanged(
    { reference }: ImagePart,
    index: number,
    validator: string | null,
    signal: AbortSignal,
  ): Promise<FetchedImage> {
    const { sources, limits } = this.#options;
    return namingImage(index, () => {
      if (reference !== null) return fetchImageIfChanged(sources, reference, validator, { signal, limits });
      throw new EngineError(
        "invalid_argument",
        `Image ${index} was sent as a uuid only, and is not cached. Send the image with its uuid.`,
      );
    });
  }

  #hash(modality: "image" | "image_embeds", item: HashedItem, request: ItemRequest): string {
    const { modelContentHash } = this.#options;
    const { processorOptions, cacheSalt } = request;
    return computeMmHash({ modality, modelContentHash, processorOptions, item, cacheSalt: cacheSalt ?? null });
  }
}

/** By position; null for what has no key. */
async function getSome<Value>(
  cache: { getMany(keys: readonly string[]): Promise<readonly (Value | null)[]> },
  keys: readonly (string | null)[],
): Promise<readonly (Value | null)[]> {
  const wanted = keys.filter((key) => key !== null);
  if (wanted.length === 0) return keys.map(() => null);
  const found = (await cache.getMany(wanted)).values();
  return keys.map((key) => (key === null ? null : (found.next().value ?? null)));
}

/** The index counts all images of the prompt. */
function parameterOf(index: number): string {
  return `prompt.images[${index}]`;
}

/** Errors name the image. */
async function namingImage<Result>(index: number, run: () => Result | Promise<Result>): Promise<Result> {
  try {
    return await run();
  } catch (error) {
    throw error instanceof EngineError ? aboutParameter(error, parameterOf(index)) : error;
  }
}

function about<Result>(parameter: string, run: () => Result): Result {
  try {
    return run();
  } catch (error) {
    throw error instanceof EngineError ? aboutParameter(error, parameter) : error;
  }
}
