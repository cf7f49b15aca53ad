/** Turns the images of a request into items for the model, and fetches and processes only those that no cache has. */
import { allOrNone } from "../concurrent-work.ts";
import type { ImageLimits } from "../contract/config.ts";
import { EngineError, invariant } from "../contract/errors.ts";
import type { GenerationRequest, ImagePart } from "../contract/generation-request.ts";
import { epochMs, observeStage } from "../contract/request-stage.ts";
import { FetchedBytes } from "../images/fetched-bytes.ts";
import type { HeldBytes } from "../images/fetched-bytes.ts";
import type { ImageSource } from "../images/image-source.ts";
import { computeMmHash, contentHashOf } from "../multimodal/hasher.ts";
import type { HashedItem, MultiModalHashInput } from "../multimodal/hasher.ts";
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
import { getSome, ImageFetcher } from "./image-fetcher.ts";
import type { FetchRequest, SourceCache } from "./image-fetcher.ts";
import { checkEmbeddings, checkWork } from "./item-checks.ts";
import type { NewItem } from "./item-checks.ts";
import { hasContent, isImagePart, optionsOfPart, parameterOf, parametersOf } from "./prompt-parts.ts";
import type { ItemPart } from "./prompt-parts.ts";
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

/** A part that no cache has. */
interface WantedPart {
  readonly part: ItemPart;
  readonly parameter: string;
  /** Null if it was not fetched to identify it. */
  readonly fetched: EncodedImage | null;
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
interface LoadingRequest extends ItemRequest, Pick<FetchRequest, "onBytes"> {
  readonly onProcessed: Required<EncodedImage>["onProcessed"];
}

export class ItemLoader {
  readonly #options: ItemLoaderOptions;
  readonly #images: ImageFetcher;
  readonly #fetchedBytes: FetchedBytes;
  readonly #heldTensors: HeldTensors;

  constructor(options: ItemLoaderOptions) {
    this.#options = options;
    this.#images = new ImageFetcher({ ...options, cache: options.caches.source });
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
    const { caches } = this.#options;
    const parameters = parametersOf(parts);
    const { identified, fetched } = await this.#identify(parts, parameters, request, signal);
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
      const indices = missing.map((mmHash) => indexOfContent(mmHash, identified, parts));
      const wantedParts = indices.map((index): WantedPart => {
        return { part: parts[index]!, parameter: parameters[index]!, fetched: fetched[index] ?? null };
      });
      return this.#processParts(wantedParts, request, signal);
    };
    const found = (await caches.processor.getOrProcess(wanted, processMissing, signal)).values();
    endLookup(0);
    return identified.map(({ item, mmHash }) => ({ mmHash, item: item ?? found.next().value! }));
  }

  /** By part: its hash, with its item where the source confirms that it is the cached one, and bytes that were fetched. */
  async #identify(
    parts: readonly ItemPart[],
    parameters: readonly string[],
    request: LoadingRequest,
    signal: AbortSignal,
  ): Promise<{
    readonly identified: readonly IdentifiedImage[];
    readonly fetched: readonly (EncodedImage | undefined)[];
  }> {
    const known = await this.#knownItems(parts, parameters, request);
    const fetched: (EncodedImage | undefined)[] = [];
    const identify = async (part: ItemPart, either: AbortSignal, index: number): Promise<IdentifiedImage> => {
      if (part.type === "frames") return { mmHash: this.#hashFrames(part, request), item: null };
      const uuid = part.type === "image" ? part.uuid : undefined;
      if (uuid !== undefined) {
        const named = { kind: "uuid", tenant: request.tenant ?? "", uuid } as const;
        return { mmHash: this.#hash("image", named, request), item: null };
      }
      const parameter = parameters[index]!;
      const knownItem = known[index] ?? null;
      const validator = knownItem?.validator ?? null;
      const answer = await this.#images.fetchIfChanged(part, parameter, validator, request, either);
      if (answer.kind === "unchanged") {
        invariant(knownItem !== null, "an image without a cached source cannot be unchanged");
        return knownItem;
      }
      fetched[index] = { bytes: answer.bytes, parameter };
      const contentHash = await this.#images.remember(part, parameter, answer, request);
      return { mmHash: this.#hash("image", { kind: "content", contentHash }, request), item: null };
    };
    return { identified: await allOrNone(parts, identify, signal), fetched };
  }

  /** Checks all parts by their headers, and then processes them. Items in the order of the parts. */
  async #processParts(
    wanted: readonly WantedPart[],
    request: LoadingRequest,
    signal: AbortSignal,
  ): Promise<readonly ProcessedItem[]> {
    const { processor, promptText, limits } = this.#options;
    const encoded = await allOrNone(
      wanted,
      async ({ part, parameter, fetched }, either) => {
        if (part.type === "frames") return null;
        const image = fetched ?? (await this.#images.fetch(part, parameter, request, either));
        return this.#inspect(image, request, either);
      },
      signal,
    );
    const newItems = wanted.map(({ part, parameter }, at): NewItem => {
      const header = part.type === "frames" ? headerOf(part) : encoded[at]!.header;
      return { header, options: optionsOfPart(part, request), parameter };
    });
    checkWork(newItems, limits);
    checkEmbeddings(newItems, this.#options, request.maxNumEmbeddings ?? Number.POSITIVE_INFINITY);
    const processing = { promptText, signal };
    const processAll = async (): Promise<readonly ProcessedItem[]> => {
      const images = encoded.filter((image) => image !== null);
      const ofImages =
        images.length === 0
          ? []
          : await processImages(processor, images, { ...processing, options: request.processorOptions });
      const parts = wanted.map(({ part }) => part);
      const ofFrames = await this.#processFrames(parts, request, processing);
      const next = ofImages.values();
      return parts.map((part) => ofFrames.get(part) ?? next.next().value!);
    };
    return observeStage("image_processing", request.onStage, processAll, () => ({ "fovea.images": wanted.length }));
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
        const file = await this.#images.fetch(part, parameterOf(index), request, either);
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
    const known = await this.#images.knownImages(parts, parameters, request);
    const mmHashes = known.map((image) =>
      image === null ? null : this.#hash("image", { kind: "content", contentHash: image.contentHash }, request),
    );
    const items = await getSome(this.#options.caches.processor, mmHashes);
    return items.map((item, index) =>
      item === null ? null : { item, mmHash: mmHashes[index]!, validator: known[index]!.validator },
    );
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

  #hashFrames(part: FramesPart, request: ItemRequest): string {
    const { width, height } = part.item.video;
    const frames = `${part.file.contentHash} ${part.frameIndices.join(" ")}`;
    const processorOptions = optionsOfPart(part, request);
    // A page has as many pixels as the request asks for.
    return part.origin === "video"
      ? this.#hash("video", { kind: "content", contentHash: frames }, { ...request, processorOptions })
      : this.#hash("document", { kind: "content", contentHash: `${frames} ${width} ${height}` }, request);
  }

  #hash(modality: MultiModalHashInput["modality"], item: HashedItem, request: ItemRequest): string {
    const { modelContentHash } = this.#options;
    const { processorOptions, cacheSalt } = request;
    return computeMmHash({ modality, modelContentHash, processorOptions, item, cacheSalt: cacheSalt ?? null });
  }
}

/** Of several parts with one hash, any may bring the content. */
function indexOfContent(mmHash: string, identified: readonly IdentifiedImage[], parts: readonly ItemPart[]): number {
  const candidates = identified.flatMap((image, at) => (image.item === null && image.mmHash === mmHash ? [at] : []));
  const index = candidates.find((at) => hasContent(parts[at]!)) ?? candidates[0];
  invariant(index !== undefined, "a cache requests only images that are missing");
  return index;
}
