/** Fetches the images of a request, and asks sources whether an image is still the one that they sent before. */
import type { ImageLimits } from "../contract/config.ts";
import { EngineError, invariant, namingParameter } from "../contract/errors.ts";
import type { GenerationRequest, ImagePart } from "../contract/generation-request.ts";
import { observeStage } from "../contract/request-stage.ts";
import type { RequestStage } from "../contract/request-stage.ts";
import { canTellUnchanged, fetchImageIfChanged } from "../images/fetch-image.ts";
import type { FetchedImage, ImageSource } from "../images/image-source.ts";
import { sourceCacheKey } from "../images/source-cache.ts";
import type { KnownImage } from "../images/source-cache.ts";
import { contentHashOf } from "../multimodal/hasher.ts";
import type { EncodedImage } from "../multimodal/multimodal-processor.ts";
import type { ItemPart } from "./prompt-parts.ts";

/** Remembers what sources reported about images. Never rejects. */
export interface SourceCache {
  getMany(keys: readonly string[]): Promise<readonly (KnownImage | null)[]>;
  setMany(entries: readonly { readonly key: string; readonly value: KnownImage }[]): void;
}

export interface ImageFetcherOptions {
  readonly sources: readonly ImageSource[];
  readonly limits: ImageLimits;
  readonly cache: SourceCache;
}

/** The request for which an image is fetched. */
export interface FetchRequest extends Pick<GenerationRequest, "tenant" | "cacheSalt" | "onStage"> {
  readonly onBytes: (numBytes: number) => void;
}

/** `parameter` names an image in errors. */
export class ImageFetcher {
  readonly #options: ImageFetcherOptions;

  constructor(options: ImageFetcherOptions) {
    this.#options = options;
  }

  /** By part: the image that its source may confirm as unchanged; null if the source or the cache has nothing. */
  async knownImages(
    parts: readonly ItemPart[],
    parameters: readonly string[],
    request: Pick<FetchRequest, "tenant" | "cacheSalt">,
  ): Promise<readonly (KnownImage | null)[]> {
    const keys = await Promise.all(parts.map((part, index) => this.#sourceKey(part, parameters[index]!, request)));
    return getSome(this.#options.cache, keys);
  }

  /** Throws EngineErrors of sources, which name the image. */
  async fetch(part: ImagePart, parameter: string, request: FetchRequest, signal: AbortSignal): Promise<EncodedImage> {
    const answer = await this.fetchIfChanged(part, parameter, null, request, signal);
    invariant(answer.kind === "fetched", "an image without a validator is fetched");
    return { bytes: answer.bytes, parameter };
  }

  /**
   * Resolves to `unchanged` if the source confirms it.
   *
   * @param validator Of the bytes that are known; null if none are.
   */
  fetchIfChanged(
    { reference }: ImagePart,
    parameter: string,
    validator: string | null,
    { tenant, onStage, onBytes }: FetchRequest,
    signal: AbortSignal,
  ): Promise<FetchedImage> {
    const { sources, limits } = this.#options;
    return namingParameter(parameter, () => {
      if (reference !== null) {
        const context = { signal, limits, tenant, onBytes };
        const fetching = async () => fetchImageIfChanged(sources, reference, validator, context);
        return observeStage("fetch", onStage, fetching, (answer) => fetchAttributes(reference, answer));
      }
      throw new EngineError(
        "invalid_argument",
        "The image was sent as a uuid only, and is not cached. Send the image with its uuid.",
      );
    });
  }

  /** Returns the hash of the image's bytes and stores it in the source cache. */
  async remember(
    part: ImagePart,
    parameter: string,
    { bytes, validator }: Extract<FetchedImage, { readonly kind: "fetched" }>,
    request: Pick<FetchRequest, "tenant" | "cacheSalt">,
  ): Promise<string> {
    const contentHash = await contentHashOf(bytes);
    const key = await this.#sourceKey(part, parameter, request);
    if (key !== null && validator !== null) {
      this.#options.cache.setMany([{ key, value: { validator, contentHash } }]);
    }
    return contentHash;
  }

  /** Null if the source cannot confirm an unchanged image, or if a uuid identifies the image anyway. */
  async #sourceKey(
    part: ItemPart,
    parameter: string,
    { tenant = "", cacheSalt }: Pick<FetchRequest, "tenant" | "cacheSalt">,
  ): Promise<string | null> {
    if (part.type === "frames") return null;
    const isNamed = part.type === "image" && part.uuid !== undefined;
    if (part.reference === null || isNamed) return null;
    const { reference } = part;
    const isTold = await namingParameter(parameter, () => canTellUnchanged(this.#options.sources, reference));
    return isTold ? sourceCacheKey(reference, JSON.stringify([tenant, cacheSalt ?? null])) : null;
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
export async function getSome<Value>(
  cache: { getMany(keys: readonly string[]): Promise<readonly (Value | null)[]> },
  keys: readonly (string | null)[],
): Promise<readonly (Value | null)[]> {
  const wanted = keys.filter((key) => key !== null);
  if (wanted.length === 0) return keys.map(() => null);
  const found = (await cache.getMany(wanted)).values();
  return keys.map((key) => (key === null ? null : (found.next().value ?? null)));
}
