/** Turns the images of a request into items for the model, and fetches and processes only those that no cache has. */
import type { ImageLimits } from "../contract/config.ts";
import { defaultDecodeLimits } from "../contract/default-limits.ts";
import { aboutParameter, EngineError, invariant } from "../contract/errors.ts";
import type { GenerationRequest, ImagePart } from "../contract/generation-request.ts";
import { epochMs, observeStage } from "../contract/request-stage.ts";
import type { RequestStage } from "../contract/request-stage.ts";
import { decodeCostOf } from "../images/decode-cost.ts";
import { canTellUnchanged, fetchImageIfChanged } from "../images/fetch-image.ts";
import { FetchedBytes } from "../images/fetched-bytes.ts";
import type { FetchedImage, ImageSource } from "../images/image-source.ts";
import { sourceCacheKey } from "../images/source-cache.ts";
import type { KnownImage } from "../images/source-cache.ts";
import { allOrNone } from "../multimodal/all-or-none.ts";
import { computeMmHash, contentHashOf } from "../multimodal/hasher.ts";
import type { HashedItem } from "../multimodal/hasher.ts";
import { HeldTensors } from "../multimodal/held-tensors.ts";
import type { RequestTensors } from "../multimodal/held-tensors.ts";
import { parseImageEmbeddings } from "../multimodal/image-embeddings.ts";
import type {
  EncodedImage,
  MultiModalProcessor,
  PixelProcessor,
  ProcessorOptions,
} from "../multimodal/multimodal-processor.ts";
import { processImages, toEmbeddingItems } from "../multimodal/process-items.ts";
import type { ProcessedItem } from "../multimodal/processed-item.ts";
import type { ProcessingInfo } from "../multimodal/processing-info.ts";
import type { PromptText } from "../multimodal/prompt-text.ts";
import { machineMemoryBytes } from "../runtime/machine-memory.ts";
import { imageBudgets } from "./image-budgets.ts";
import { tooManyEmbeddings } from "./request-options.ts";

/** Looks items up by `mmHash`. Missing items are processed as one batch, once for all requests that need them. */
export interface ItemCache {
  /** By position; null for missing items. Never rejects. */
  getMany(mmHashes: readonly string[]): Promise<readonly (ProcessedItem | null)[]>;
  getOrProcess(
    mmHashes: readonly string[],
    processMissing: (missing: readonly string[]) => Promise<readonly ProcessedItem[]>,
    signal: AbortSignal,
  ): Promise<readonly ProcessedItem[]>;
}

/** Remembers what sources reported about images. Never rejects. */
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
  /** Content hash of the built model; part of every item's hash. */
  readonly modelContentHash: string;
  /** Width of the decoder and of embeddings. */
  readonly hiddenSize: number;
}

export interface LoadedItem {
  readonly mmHash: string;
  readonly item: ProcessedItem;
}

interface IdentifiedImage {
  readonly mmHash: string;
  /** Null until it is looked up or processed. */
  readonly item: ProcessedItem | null;
}

interface KnownItem extends IdentifiedImage {
  /** The source's validator of the bytes from which the item was made. */
  readonly validator: string;
  readonly item: ProcessedItem;
}

type InspectedImage = EncodedImage & Required<Pick<EncodedImage, "header">>;

/** The request for which an image is loaded. */
export interface ItemRequest extends Pick<GenerationRequest, "tenant" | "cacheSalt" | "priority" | "onStage"> {
  /** The checkpoint's options with the request's changes. */
  readonly processorOptions: ProcessorOptions;
  /** Maximum number of embeddings for which the prompt has room; unlimited if left out. */
  readonly maxNumEmbeddings?: number;
}

/** One whose images are being loaded. */
interface LoadingRequest extends ItemRequest {
  readonly onBytes: (numBytes: number) => void;
  readonly onProcessed: Required<EncodedImage>["onProcessed"];
}

export class ItemLoader {
  readonly #options: ItemLoaderOptions;
  readonly #fetchedBytes: FetchedBytes;
  readonly #heldTensors: HeldTensors;

  constructor(options: ItemLoaderOptions) {
    this.#options = options;
    const budgets = imageBudgets(machineMemoryBytes());
    this.#fetchedBytes = new FetchedBytes(options.limits.maxFetchedBytes ?? budgets.maxFetchedBytes);
    this.#heldTensors = new HeldTensors(options.limits.maxProcessedBytes ?? budgets.maxProcessedBytes);
  }

  /** Begins to count the tensors of a request. */
  openTensors(tenant: string): RequestTensors {
    return this.#heldTensors.open(tenant);
  }

  /**
   * Returns items in the order of the parts, which are either all images or all embeddings. The first failure cancels
   * the others, which have ended when this rejects: with an error of an image (`parameter` is `prompt.images[index]`),
   * `queue_full` or `aborted`.
   *
   * @param tensors Counts the tensors of the items. The caller ends the request if it is refused.
   */
  async load(
    parts: readonly ImagePart[],
    given: ItemRequest,
    signal: AbortSignal,
    tensors: RequestTensors | null = null,
  ): Promise<readonly LoadedItem[]> {
    const { processor } = this.#options;
    const processorOptions = processor.optionsFor?.(given.processorOptions, parts.length) ?? given.processorOptions;
    using held = this.#fetchedBytes.open(given.tenant ?? "");
    const request: LoadingRequest = {
      ...given,
      processorOptions,
      onBytes: (numBytes) => held.add(numBytes),
      onProcessed: (processed) => tensors?.add(processed),
    };
    const either = AbortSignal.any([signal, held.refused]);
    try {
      const loaded =
        parts[0]?.type === "image_embeds"
          ? await this.#loadEmbeddings(parts, request, either)
          : await this.#loadImages(parts, request, either);
      tensors?.replace(loaded.map(({ item }) => item));
      return loaded;
    } catch (error) {
      if (held.refused.aborted) throw held.refused.reason;
      if (signal.aborted) throw new EngineError("aborted", "The request was aborted.", { cause: signal.reason });
      throw error;
    }
  }

  async #loadImages(
    parts: readonly ImagePart[],
    request: LoadingRequest,
    signal: AbortSignal,
  ): Promise<readonly LoadedItem[]> {
    const { caches, processor, promptText } = this.#options;
    const known = await this.#knownItems(parts, request);
    /** Bytes that were fetched to identify an image. */
    const fetched: (EncodedImage | undefined)[] = [];
    const identified = await allOrNone<ImagePart, IdentifiedImage>(
      parts,
      async (part, either, index) => {
        const uuid = part.type === "image" ? part.uuid : undefined;
        if (uuid !== undefined) {
          const named = { kind: "uuid", tenant: request.tenant ?? "", uuid } as const;
          return { mmHash: this.#hash("image", named, request), item: null };
        }
        const knownItem = known[index] ?? null;
        const answer = await this.#fetchIfChanged(part, index, knownItem?.validator ?? null, request, either);
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
    const wanted = identified.filter(({ item }) => item === null).map(({ mmHash }) => mmHash);
    const { onStage } = request;
    const lookupMs = onStage === undefined ? 0 : epochMs();
    let isLookedUp = false;
    const endLookup = (numMissing: number): void => {
      if (isLookedUp || onStage === undefined) return;
      isLookedUp = true;
      const numHits = parts.length - numMissing;
      const attributes = { "fovea.cache.hits": numHits, "fovea.cache.misses": numMissing };
      onStage({ name: "processor_cache", startMs: lookupMs, endMs: epochMs(), attributes });
    };
    const processMissing = async (missing: readonly string[]): Promise<readonly ProcessedItem[]> => {
      endLookup(missing.length);
      const images = await allOrNone(
        missing,
        async (mmHash, either) => {
          const indices = identified.flatMap(({ item, mmHash: other }, at) =>
            item === null && other === mmHash ? [at] : [],
          );
          // Of several images with one uuid, any may bring the image.
          const index = indices.find((at) => parts[at]!.reference !== null) ?? indices[0];
          invariant(index !== undefined, "a cache requests only images that are missing");
          return this.#inspect(
            fetched[index] ?? (await this.#fetch(parts[index]!, index, request, either)),
            request,
            either,
          );
        },
        signal,
      );
      this.#checkWork(images);
      this.#checkEmbeddings(images, request);
      const processing = { options: request.processorOptions, promptText, signal };
      return observeStage(
        "image_processing",
        onStage,
        () => processImages(processor, images, processing),
        () => ({ "fovea.images": images.length }),
      );
    };
    const found = (await caches.processor.getOrProcess(wanted, processMissing, signal)).values();
    endLookup(0);
    return identified.map(({ item }, index) => ({ mmHash: mmHashes[index]!, item: item ?? found.next().value! }));
  }

  /** Embeddings are not cached: they came with the request and are what a cache would hold. */
  async #loadEmbeddings(
    parts: readonly ImagePart[],
    request: LoadingRequest,
    signal: AbortSignal,
  ): Promise<readonly LoadedItem[]> {
    const { processor, info, hiddenSize, promptText } = this.#options;
    const limits = { hiddenSize, maxNumEmbeddings: info.maxTokensPerItem };
    const loaded = await allOrNone(
      parts,
      async (part, either, index) => {
        const file = await this.#fetch(part, index, request, either);
        const grid = (part.type === "image_embeds" ? part.grid : undefined) ?? null;
        const fileHash = await contentHashOf(file.bytes);
        // Positions depend on the grid.
        const contentHash = grid === null ? fileHash : `${fileHash} ${grid.join(" ")}`;
        const mmHash = this.#hash("image_embeds", { kind: "content", contentHash }, request);
        return { mmHash, embeddings: parseImageEmbeddings(file, limits), grid };
      },
      signal,
    );
    const items = await toEmbeddingItems(processor, loaded, {
      options: request.processorOptions,
      promptText,
    });
    return items.map((item, index) => ({ mmHash: loaded[index]!.mmHash, item }));
  }

  /**
   * By part: the cached item that the source may confirm as unchanged. The item is held from here on, because the cache
   * may evict it before the source has answered, and a later fetch may return other bytes. Null if the source or the
   * cache has nothing.
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

  /** Null if the source cannot confirm an unchanged image, or if a uuid identifies the image anyway. */
  async #sourceKey(part: ImagePart, index: number, { tenant = "", cacheSalt }: ItemRequest): Promise<string | null> {
    const isNamed = part.type === "image" && part.uuid !== undefined;
    if (part.reference === null || isNamed) return null;
    const { reference } = part;
    const isTold = await namingImage(index, () => canTellUnchanged(this.#options.sources, reference));
    return isTold ? sourceCacheKey(reference, JSON.stringify([tenant, cacheSalt ?? null])) : null;
  }

  /** Returns the hash of the image's bytes and stores it in the source cache. */
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

  async #fetch(part: ImagePart, index: number, request: LoadingRequest, signal: AbortSignal): Promise<EncodedImage> {
    const answer = await this.#fetchIfChanged(part, index, null, request, signal);
    invariant(answer.kind === "fetched", "an image without a validator is fetched");
    return { bytes: answer.bytes, parameter: parameterOf(index) };
  }

  /** Reads only the header, so that a request is rejected for its cost before any of it is spent. */
  async #inspect(image: EncodedImage, request: LoadingRequest, signal: AbortSignal): Promise<InspectedImage> {
    const { tenant = "", priority = 0, onProcessed } = request;
    const owned = { ...image, owner: { tenant, request, priority }, onProcessed };
    return { ...owned, header: await this.#options.pixels.inspect(owned, signal) };
  }

  /** Checks images that have to be processed; cached images cost nothing. */
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

  /** Checks images that have to be processed: processing them is useless if the prompt has no room for them. */
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
      `The new images of the prompt have ${numEmbeddings} embeddings; next to its text there is room for ${maxNumEmbeddings}. Send fewer or smaller images.`,
      { parameter: "prompt" },
    );
  }

  #fetchIfChanged(
    { reference }: ImagePart,
    index: number,
    validator: string | null,
    { onStage, onBytes }: LoadingRequest,
    signal: AbortSignal,
  ): Promise<FetchedImage> {
    const { sources, limits } = this.#options;
    return namingImage(index, () => {
      if (reference !== null) {
        const fetching = async () => fetchImageIfChanged(sources, reference, validator, { signal, limits, onBytes });
        return observeStage("fetch", onStage, fetching, (answer) => fetchAttributes(reference, answer));
      }
      throw new EngineError(
        "invalid_argument",
        "The image was sent as a uuid only, and is not cached. Send the image with its uuid.",
      );
    });
  }

  #hash(modality: "image" | "image_embeds", item: HashedItem, request: ItemRequest): string {
    const { modelContentHash } = this.#options;
    const { processorOptions, cacheSalt } = request;
    return computeMmHash({ modality, modelContentHash, processorOptions, item, cacheSalt: cacheSalt ?? null });
  }
}

/** Not the reference itself: it may carry the picture or a signature. */
function fetchAttributes(reference: string, answer: FetchedImage): RequestStage["attributes"] {
  const scheme = reference.slice(0, reference.indexOf(":"));
  return {
    "url.scheme": scheme,
    "fovea.image.unchanged": answer.kind === "unchanged",
    ...(answer.kind === "fetched" && { "fovea.image.bytes": answer.bytes.byteLength }),
  };
}

/** By position; null for entries without a key. */
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

/** Adds the name of the image to errors. */
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
