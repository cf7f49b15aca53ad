/** From the images of a request to items ready for the model: fetched and processed only where no cache has them. */
import { EngineError, invariant } from "./errors.ts";
import { canTellUnchanged, fetchImageIfChanged } from "./images/fetch-image.ts";
import { sourceCacheKey } from "./images/source-cache.ts";
import { allOrNone } from "./multimodal/all-or-none.ts";
import { computeMmHash, contentHashOf } from "./multimodal/hasher.ts";
import { parseImageEmbeddings } from "./multimodal/image-embeddings.ts";
import { processImages, toEmbeddingItems } from "./multimodal/process-items.ts";
import type { ImageLimits } from "./config.ts";
import type { GenerationRequest, ImagePart } from "./generation-request.ts";
import type { FetchedImage, ImageSource } from "./images/image-source.ts";
import type { KnownImage } from "./images/source-cache.ts";
import type { HashedItem } from "./multimodal/hasher.ts";
import type { EncodedImage, MultiModalProcessor, ProcessorOptions } from "./multimodal/multimodal-processor.ts";
import type { ProcessedItem } from "./multimodal/processed-item.ts";
import type { ProcessingInfo } from "./multimodal/processing-info.ts";
import type { PromptText } from "./multimodal/prompt-text.ts";

/** Looks items up by `mmHash` and has those that are missing processed as one batch, once for all who want them. */
export interface ItemCache {
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

/** The request an image is loaded for. */
export interface ItemRequest extends Pick<GenerationRequest, "tenant" | "cacheSalt"> {
  /** The checkpoint's with the request's changes. */
  readonly processorOptions: ProcessorOptions;
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
    const known = await this.#knownImages(parts, request);
    /** Bytes that had to be fetched to know which image it is. */
    const fetched: (EncodedImage | undefined)[] = [];
    const mmHashes = await allOrNone(
      parts,
      async (part, either, index) => {
        const uuid = part.type === "image" ? part.uuid : undefined;
        if (uuid !== undefined)
          return this.#hash("image", { kind: "uuid", tenant: request.tenant ?? "", uuid }, request);
        const { contentHash, image } = await this.#identify(part, index, {
          request,
          known: known[index],
          signal: either,
        });
        if (image !== null) fetched[index] = image;
        return this.#hash("image", { kind: "content", contentHash }, request);
      },
      signal,
    );
    const processMissing = async (missing: readonly string[]): Promise<readonly ProcessedItem[]> => {
      const images = await allOrNone(
        missing,
        async (mmHash, either) => {
          const index = mmHashes.indexOf(mmHash);
          invariant(index !== -1, "a cache asks for what it was asked for");
          return fetched[index] ?? this.#fetch(parts[index], index, either);
        },
        signal,
      );
      return processImages(processor, images, { options: request.processorOptions, promptText, signal });
    };
    const items = await caches.processor.getOrProcess(mmHashes, processMissing, signal);
    return items.map((item, index) => ({ mmHash: mmHashes[index], item }));
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
    const items = await toEmbeddingItems(processor, embeddings, promptText);
    return items.map((item, index) => ({ mmHash: loaded[index].mmHash, item }));
  }

  /** By part: what its source said of it the last time; null where that is not known or would not matter. */
  async #knownImages(parts: readonly ImagePart[], request: ItemRequest): Promise<readonly (KnownImage | null)[]> {
    const { caches } = this.#options;
    const keys = await Promise.all(parts.map((part, index) => this.#sourceKey(part, index, request)));
    const wanted = keys.filter((key) => key !== null);
    if (wanted.length === 0) return keys.map(() => null);
    const found = (await caches.source.getMany(wanted)).values();
    return keys.map((key) => (key === null ? null : (found.next().value ?? null)));
  }

  /** Null where the source cannot tell an image that is unchanged, or a uuid tells the image anyway. */
  async #sourceKey(part: ImagePart, index: number, { tenant = "", cacheSalt }: ItemRequest): Promise<string | null> {
    const isNamed = part.type === "image" && part.uuid !== undefined;
    if (part.reference === null || isNamed) return null;
    const { reference } = part;
    const isTold = await namingImage(index, () => canTellUnchanged(this.#options.sources, reference));
    return isTold ? sourceCacheKey(reference, JSON.stringify([tenant, cacheSalt ?? null])) : null;
  }

  /** The hash of an image's bytes, and the bytes where they had to be fetched for it. */
  async #identify(
    part: ImagePart,
    index: number,
    of: { readonly request: ItemRequest; readonly known: KnownImage | null; readonly signal: AbortSignal },
  ): Promise<{ readonly contentHash: string; readonly image: EncodedImage | null }> {
    const { known, signal, request } = of;
    const answer = await this.#fetchIfChanged(part, index, known?.validator ?? null, signal);
    if (answer.kind === "unchanged") {
      invariant(known !== null, "what is not known is not unchanged");
      return { contentHash: known.contentHash, image: null };
    }
    const { bytes, validator } = answer;
    const contentHash = await contentHashOf(bytes);
    const key = await this.#sourceKey(part, index, request);
    if (key !== null && validator !== null) {
      this.#options.caches.source.setMany([{ key, value: { validator, contentHash } }]);
    }
    return { contentHash, image: { bytes, parameter: parameterOf(index) } };
  }

  async #fetch(part: ImagePart, index: number, signal: AbortSignal): Promise<EncodedImage> {
    const answer = await this.#fetchIfChanged(part, index, null, signal);
    invariant(answer.kind === "fetched", "without a validator an image is fetched");
    return { bytes: answer.bytes, parameter: parameterOf(index) };
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
      throw new EngineError("invalid_argument", `Image ${index} was sent by its uuid alone, and is not cached.`);
    });
  }

  #hash(modality: "image" | "image_embeds", item: HashedItem, request: ItemRequest): string {
    const { modelContentHash } = this.#options;
    const { processorOptions, cacheSalt } = request;
    return computeMmHash({ modality, modelContentHash, processorOptions, item, cacheSalt: cacheSalt ?? null });
  }
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
    if (!(error instanceof EngineError)) throw error;
    throw new EngineError(error.code, error.message, { cause: error, parameter: parameterOf(index) });
  }
}
