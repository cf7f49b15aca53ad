/** Turns the images of a request into items for the model, and fetches and processes only those that no cache has. */
import type { ImageLimits } from "../contract/config.ts";
import { aboutParameter, EngineError, invariant } from "../contract/errors.ts";
import type { GenerationRequest, ImagePart } from "../contract/generation-request.ts";
import { epochMs, observeStage } from "../contract/request-stage.ts";
import type { RequestStage } from "../contract/request-stage.ts";
import { canTellUnchanged, fetchImageIfChanged } from "../images/fetch-image.ts";
import { FetchedBytes } from "../images/fetched-bytes.ts";
import type { HeldBytes } from "../images/fetched-bytes.ts";
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
import type { ProcessItemsOptions } from "../multimodal/process-items.ts";
import type { ProcessedItem } from "../multimodal/processed-item.ts";
import type { ProcessingInfo } from "../multimodal/processing-info.ts";
import type { PromptText } from "../multimodal/prompt-text.ts";
import { machineMemoryBytes } from "../runtime/machine-memory.ts";
import { imageBudgets } from "./image-budgets.ts";
import { checkEmbeddings, checkWork } from "./item-checks.ts";
import type { NewItem } from "./item-checks.ts";
import { hasContent, isImagePart, optionsOfPart, parameterOf, parametersOf } from "./item-parts.ts";
import type { ItemPart } from "./item-parts.ts";
import type { KnownVideoCache } from "./video-files.ts";
import { headerOf } from "./video-loader.ts";
import type { FramesPart, VideoLoader } from "./video-loader.ts";

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
  readonly video: KnownVideoCache;
}

export interface ItemLoaderOptions {
  readonly processor: MultiModalProcessor;
  readonly info: ProcessingInfo;
  readonly pixels: Pick<PixelProcessor, "inspect">;
  /** Left out where prompts have no videos. */
  readonly videos?: Pick<VideoLoader, "decode">;
  readonly sources: readonly ImageSource[];
  readonly caches: Pick<ItemCaches, "processor" | "source">;
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

  /** Begins to count the fetched bytes of a request. */
  openBytes(tenant: string): HeldBytes {
    return this.#fetchedBytes.open(tenant);
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
    parts: readonly ItemPart[],
    given: ItemRequest,
    signal: AbortSignal,
    tensors: RequestTensors | null = null,
  ): Promise<readonly LoadedItem[]> {
    const { processor } = this.#options;
    const numImages = parts.filter((part) => part.type !== "frames" || part.options === null).length;
    const processorOptions = processor.optionsFor?.(given.processorOptions, numImages) ?? given.processorOptions;
    using held = this.#fetchedBytes.open(given.tenant ?? "");
    const request: LoadingRequest = {
      ...given,
      processorOptions,
      onBytes: (numBytes) => held.add(numBytes),
      onProcessed: (processed) => tensors?.add(processed),
    };
    const either = AbortSignal.any([signal, held.refused]);
    try {
      const loaded = parts.some(({ type }) => type === "image_embeds")
        ? await this.#loadEmbeddings(parts.filter(isImagePart), request, either)
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
    parts: readonly ItemPart[],
    request: LoadingRequest,
    signal: AbortSignal,
  ): Promise<readonly LoadedItem[]> {
    const { caches, processor, promptText } = this.#options;
    const parameters = parametersOf(parts);
    const known = await this.#knownItems(parts, parameters, request);
    /** Bytes that were fetched to identify an image. */
    const fetched: (EncodedImage | undefined)[] = [];
    const identified = await allOrNone<ItemPart, IdentifiedImage>(
      parts,
      async (part, either, index) => {
        if (part.type === "frames") return { mmHash: this.#hashFrames(part, request), item: null };
        const uuid = part.type === "image" ? part.uuid : undefined;
        if (uuid !== undefined) {
          const named = { kind: "uuid", tenant: request.tenant ?? "", uuid } as const;
          return { mmHash: this.#hash("image", named, request), item: null };
        }
        const knownItem = known[index] ?? null;
        const answer = await this.#fetchIfChanged(
          part,
          parameters[index]!,
          knownItem?.validator ?? null,
          request,
          either,
        );
        if (answer.kind === "unchanged") {
          invariant(knownItem !== null, "an image without a cached source cannot be unchanged");
          return knownItem;
        }
        fetched[index] = { bytes: answer.bytes, parameter: parameters[index]! };
        const contentHash = await this.#remember(part, parameters[index]!, answer, request);
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
      const indices = missing.map((mmHash) => {
        const candidates = identified.flatMap(({ item, mmHash: other }, at) =>
          item === null && other === mmHash ? [at] : [],
        );
        // Of several images with one uuid, any may bring the image.
        const index = candidates.find((at) => hasContent(parts[at]!)) ?? candidates[0];
        invariant(index !== undefined, "a cache requests only images that are missing");
        return index;
      });
      const fetchedImages = await allOrNone(
        indices,
        async (index, either) => {
          const part = parts[index]!;
          if (part.type === "frames") return null;
          const encoded = fetched[index] ?? (await this.#fetch(part, parameters[index]!, request, either));
          return this.#inspect(encoded, request, either);
        },
        signal,
      );
      const newItems = indices.map((index, at): NewItem => {
        const part = parts[index]!;
        const header = part.type === "frames" ? headerOf(part) : fetchedImages[at]!.header;
        return { header, options: optionsOfPart(part, request), parameter: parameters[index]! };
      });
      checkWork(newItems, this.#options.limits);
      checkEmbeddings(newItems, this.#options, request.maxNumEmbeddings ?? Number.POSITIVE_INFINITY);
      const processing = { promptText, signal };
      const processAll = async (): Promise<readonly ProcessedItem[]> => {
        const images = fetchedImages.filter((image) => image !== null);
        const ofImages =
          images.length === 0
            ? []
            : await processImages(processor, images, { ...processing, options: request.processorOptions });
        const ofFrames = await this.#processFrames(
          indices.map((index) => parts[index]!),
          request,
          processing,
        );
        const next = ofImages.values();
        return indices.map((index) => ofFrames.get(parts[index]!) ?? next.next().value!);
      };
      return observeStage("image_processing", onStage, processAll, () => ({ "fovea.images": indices.length }));
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
        const file = await this.#fetch(part, parameterOf(index), request, either);
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
  async #knownItems(
    parts: readonly ItemPart[],
    parameters: readonly string[],
    request: ItemRequest,
  ): Promise<readonly (KnownItem | null)[]> {
    const { caches } = this.#options;
    const keys = await Promise.all(parts.map((part, index) => this.#sourceKey(part, parameters[index]!, request)));
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
  async #sourceKey(part: ItemPart, parameter: string, { tenant = "", cacheSalt }: ItemRequest): Promise<string | null> {
    if (part.type === "frames") return null;
    const isNamed = part.type === "image" && part.uuid !== undefined;
    if (part.reference === null || isNamed) return null;
    const { reference } = part;
    const isTold = await namingImage(parameter, () => canTellUnchanged(this.#options.sources, reference));
    return isTold ? sourceCacheKey(reference, JSON.stringify([tenant, cacheSalt ?? null])) : null;
  }

  /** Returns the hash of the image's bytes and stores it in the source cache. */
  async #remember(
    part: ImagePart,
    parameter: string,
    { bytes, validator }: Extract<FetchedImage, { readonly kind: "fetched" }>,
    request: ItemRequest,
  ): Promise<string> {
    const contentHash = await contentHashOf(bytes);
    const key = await this.#sourceKey(part, parameter, request);
    if (key !== null && validator !== null) {
      this.#options.caches.source.setMany([{ key, value: { validator, contentHash } }]);
    }
    return contentHash;
  }

  async #fetch(
    part: ImagePart,
    parameter: string,
    request: LoadingRequest,
    signal: AbortSignal,
  ): Promise<EncodedImage> {
    const answer = await this.#fetchIfChanged(part, parameter, null, request, signal);
    invariant(answer.kind === "fetched", "an image without a validator is fetched");
    return { bytes: answer.bytes, parameter };
  }

  /** By part, for those that are frames. */
  async #processFrames(
    parts: readonly ItemPart[],
    request: LoadingRequest,
    processing: Omit<ProcessItemsOptions, "options">,
  ): Promise<ReadonlyMap<ItemPart, ProcessedItem>> {
    const processed = new Map<ItemPart, ProcessedItem>();
    const frames = parts.filter((part) => part.type === "frames");
    if (frames.length === 0) return processed;
    const { processor, videos } = this.#options;
    invariant(videos !== undefined, "videos are rejected where none can be decoded");
    const { tenant = "", priority = 0, onBytes, onProcessed } = request;
    const decoding = { owner: { tenant, request, priority }, onBytes, onProcessed };
    for await (const group of videos.decode(frames, decoding, processing.signal)) {
      const batches = Map.groupBy(group.parts.keys(), (at) => optionsOfPart(group.parts[at]!, request));
      for (const [options, indices] of batches) {
        const images = indices.map((at) => group.images[at]!);
        const items = await processImages(processor, images, { ...processing, options });
        for (const [index, at] of indices.entries()) processed.set(group.parts[at]!, items[index]!);
      }
    }
    return processed;
  }

  /** Reads only the header, so that a request is rejected for its cost before any of it is spent. */
  async #inspect(image: EncodedImage, request: LoadingRequest, signal: AbortSignal): Promise<InspectedImage> {
    const { tenant = "", priority = 0, onProcessed } = request;
    const owned = { ...image, owner: { tenant, request, priority }, onProcessed };
    return { ...owned, header: await this.#options.pixels.inspect(owned, signal) };
  }

  #fetchIfChanged(
    { reference }: ImagePart,
    parameter: string,
    validator: string | null,
    { onStage, onBytes }: LoadingRequest,
    signal: AbortSignal,
  ): Promise<FetchedImage> {
    const { sources, limits } = this.#options;
    return namingImage(parameter, () => {
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

  #hashFrames(part: FramesPart, request: ItemRequest): string {
    const contentHash = `${part.file.contentHash} ${part.frameIndices.join(" ")}`;
    const processorOptions = optionsOfPart(part, request);
    return this.#hash("video", { kind: "content", contentHash }, { ...request, processorOptions });
  }

  #hash(modality: "image" | "image_embeds" | "video", item: HashedItem, request: ItemRequest): string {
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

/** Adds the name of the image to errors. */
async function namingImage<Result>(parameter: string, run: () => Result | Promise<Result>): Promise<Result> {
  try {
    return await run();
  } catch (error) {
    throw error instanceof EngineError ? aboutParameter(error, parameter) : error;
  }
}
