/** From the images of a request to items ready for the model: fetched and processed only where no cache has them. */
import { EngineError, invariant } from "./errors.ts";
import { fetchImage } from "./images/fetch-image.ts";
import { allOrNone } from "./multimodal/all-or-none.ts";
import { computeMmHash } from "./multimodal/hasher.ts";
import { parseImageEmbeddings } from "./multimodal/image-embeddings.ts";
import { processImages, toEmbeddingItems } from "./multimodal/process-items.ts";
import type { ImageLimits } from "./config.ts";
import type { GenerationRequest, ImagePart } from "./generation-request.ts";
import type { ImageSource } from "./images/image-source.ts";
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

export interface ItemLoaderOptions {
  readonly processor: MultiModalProcessor;
  readonly info: ProcessingInfo;
  readonly sources: readonly ImageSource[];
  readonly cache: ItemCache;
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

type ItemRequest = Pick<GenerationRequest, "tenant" | "cacheSalt">;

export class ItemLoader {
  readonly #options: ItemLoaderOptions;

  constructor(options: ItemLoaderOptions) {
    this.#options = options;
  }

  /**
   * In the order of the parts, which are all images or all embeddings. The first failure cancels the rest, which have
   * ended when this rejects: with errors of images (`parameter` is `prompt.images[index]`) or `aborted`.
   *
   * @param options The checkpoint's with the request's changes.
   */
  async load(
    parts: readonly ImagePart[],
    options: ProcessorOptions,
    request: ItemRequest,
    signal: AbortSignal,
  ): Promise<readonly LoadedItem[]> {
    try {
      return parts[0]?.type === "image_embeds"
        ? await this.#loadEmbeddings(parts, options, request, signal)
        : await this.#loadImages(parts, options, request, signal);
    } catch (error) {
      if (signal.aborted) throw new EngineError("aborted", "The request was aborted.", { cause: signal.reason });
      throw error;
    }
  }

  async #loadImages(
    parts: readonly ImagePart[],
    options: ProcessorOptions,
    request: ItemRequest,
    signal: AbortSignal,
  ): Promise<readonly LoadedItem[]> {
    const { cache, processor, promptText } = this.#options;
    const encoded: (EncodedImage | undefined)[] = [];
    const mmHashes = await allOrNone(
      parts,
      async (part, either, index) => {
        const uuid = part.type === "image" ? part.uuid : undefined;
        if (uuid !== undefined) {
          const item = { kind: "uuid", tenant: request.tenant ?? "", uuid } as const;
          return this.#hash("image", item, options, request);
        }
        encoded[index] = await this.#fetch(part, index, either);
        const item = { kind: "content", encodedBytes: encoded[index].bytes } as const;
        return this.#hash("image", item, options, request);
      },
      signal,
    );
    const processMissing = async (missing: readonly string[]): Promise<readonly ProcessedItem[]> => {
      const images = await allOrNone(
        missing,
        async (mmHash, either) => {
          const index = mmHashes.indexOf(mmHash);
          invariant(index !== -1, "a cache asks for what it was asked for");
          return encoded[index] ?? this.#fetch(parts[index], index, either);
        },
        signal,
      );
      return processImages(processor, images, { options, promptText, signal });
    };
    const items = await cache.getOrProcess(mmHashes, processMissing, signal);
    return items.map((item, index) => ({ mmHash: mmHashes[index], item }));
  }

  /** Not cached: they are what a cache would hold, and came with the request. */
  async #loadEmbeddings(
    parts: readonly ImagePart[],
    options: ProcessorOptions,
    request: ItemRequest,
    signal: AbortSignal,
  ): Promise<readonly LoadedItem[]> {
    const { processor, info, hiddenSize, promptText } = this.#options;
    const limits = { hiddenSize, maxNumEmbeddings: info.maxTokensPerItem };
    const loaded = await allOrNone(
      parts,
      async (part, either, index) => {
        const file = await this.#fetch(part, index, either);
        const item = { kind: "content", encodedBytes: file.bytes } as const;
        const mmHash = await this.#hash("image_embeds", item, options, request);
        return { mmHash, embeddings: parseImageEmbeddings(file, limits) };
      },
      signal,
    );
    const embeddings = loaded.map((item) => item.embeddings);
    const items = await toEmbeddingItems(processor, embeddings, promptText);
    return items.map((item, index) => ({ mmHash: loaded[index].mmHash, item }));
  }

  /** Errors name the image by its index among all of the prompt. */
  async #fetch({ reference }: ImagePart, index: number, signal: AbortSignal): Promise<EncodedImage> {
    const parameter = `prompt.images[${index}]`;
    if (reference === null) {
      throw new EngineError("invalid_argument", `Image ${index} was sent by its uuid alone, and is not cached.`, {
        parameter,
      });
    }
    try {
      const bytes = await fetchImage(this.#options.sources, reference, { signal, limits: this.#options.limits });
      return { bytes, parameter };
    } catch (error) {
      if (!(error instanceof EngineError)) throw error;
      throw new EngineError(error.code, error.message, { cause: error, parameter });
    }
  }

  #hash(
    modality: "image" | "image_embeds",
    item: HashedItem,
    processorOptions: ProcessorOptions,
    { cacheSalt = null }: Pick<ItemRequest, never> & { readonly cacheSalt?: string | null },
  ): Promise<string> {
    const { modelContentHash } = this.#options;
    return computeMmHash({ modality, modelContentHash, processorOptions, item, cacheSalt });
  }
}
