/** Where encoded images come from: one implementation a scheme. */
import { invariant } from "../contract/errors.ts";

export interface FetchImageOptions {
  /** When it aborts, the source stops at once and rejects with the signal's reason. */
  readonly signal: AbortSignal;
  /** Beyond this, the source stops reading and rejects with `image_too_large`. */
  readonly maxImageBytes: number;
}

export interface FetchIfChangedOptions extends FetchImageOptions {
  /** What the source gave with the bytes the last time; null fetches in any case. */
  readonly validator: string | null;
}

export type FetchedImage =
  /** The image's bytes are those that came with the validator. */
  | { readonly kind: "unchanged" }
  /** `validator`: null where the source has nothing to tell these bytes from later ones. */
  | { readonly kind: "fetched"; readonly bytes: Uint8Array; readonly validator: string | null };

export interface ImageSource {
  /** URL schemes served, without the colon: "data", "https", "s3". */
  readonly schemes: readonly string[];
  /**
   * Resolves to the encoded bytes.
   *
   * @throws EngineError (as a rejection) `invalid_image_reference`, `image_unreachable` or `image_too_large`; the reason
   *   of the signal when it aborts.
   */
  fetch(reference: string, options: FetchImageOptions): Promise<Uint8Array>;
  /**
   * As `fetch`, asking the source first whether it still has the same bytes, in the same call. Only of sources whose
   * images can change and say so.
   *
   * @throws What `fetch` throws.
   */
  fetchIfChanged?(reference: string, options: FetchIfChangedOptions): Promise<FetchedImage>;
}

/** A source that holds connections; who made it closes it. */
export interface ConnectedImageSource extends ImageSource {
  /** Ends its connections; fetches in flight fail. Idempotent. */
  close(): Promise<void>;
}

/** `fetch` of a source that has `fetchIfChanged`. */
export function fetchAlways(fetchIfChanged: NonNullable<ImageSource["fetchIfChanged"]>): ImageSource["fetch"] {
  return async (reference, options) => bytesOf(await fetchIfChanged(reference, { ...options, validator: null }));
}

/** Of an image that was fetched without a validator. */
export function bytesOf(image: FetchedImage): Uint8Array {
  invariant(image.kind === "fetched", "an image without a validator cannot be unchanged");
  return image.bytes;
}
