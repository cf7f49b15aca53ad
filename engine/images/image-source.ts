/** Sources of encoded images, one implementation per scheme. */
import { invariant } from "../contract/errors.ts";

export interface FetchImageOptions {
  /** When it aborts, the source stops at once and rejects with the signal's reason. */
  readonly signal: AbortSignal;
  /** Above this limit, the source stops reading and rejects with `image_too_large`. */
  readonly maxImageBytes: number;
  /** See `GenerationRequest`. Sources that own what they send, such as uploaded files, send it to its tenant only. */
  readonly tenant?: string | undefined;
  /** Called with the length of each piece that has arrived. Not for bytes that came with the request. */
  readonly onBytes?: ((numBytes: number) => void) | undefined;
}

export interface FetchIfChangedOptions extends FetchImageOptions {
  /** The validator that came with the previous bytes; null fetches unconditionally. */
  readonly validator: string | null;
}

export type FetchedImage =
  /** The image's bytes are those that came with the validator. */
  | { readonly kind: "unchanged" }
  /** `validator` is null if the source cannot distinguish these bytes from later ones. */
  | { readonly kind: "fetched"; readonly bytes: Uint8Array; readonly validator: string | null };

export interface ImageSource {
  /** Supported URL schemes without the colon: "data", "https", "s3". */
  readonly schemes: readonly string[];
  /**
   * Resolves to the encoded bytes.
   *
   * @throws EngineError (as a rejection) `invalid_image_reference`, `image_unreachable` or `image_too_large`; the reason
   *   of the signal when it aborts.
   */
  fetch(reference: string, options: FetchImageOptions): Promise<Uint8Array>;
  /**
   * Like `fetch`, but the same call first asks whether the bytes have changed. Only for sources that can answer that.
   *
   * @throws The errors of `fetch`.
   */
  fetchIfChanged?(reference: string, options: FetchIfChangedOptions): Promise<FetchedImage>;
}

/** A source with connections. Its creator closes it. */
export interface ConnectedImageSource extends ImageSource {
  /** Closes its connections; running fetches fail, and the next fetch connects again. */
  disconnect(): Promise<void>;
  /** Closes its connections; running fetches fail. Idempotent. */
  close(): Promise<void>;
}

/** Implements `fetch` for a source with `fetchIfChanged`. */
export function fetchAlways(fetchIfChanged: NonNullable<ImageSource["fetchIfChanged"]>): ImageSource["fetch"] {
  return async (reference, options) => bytesOf(await fetchIfChanged(reference, { ...options, validator: null }));
}

/** The bytes of an image that was fetched without a validator. */
export function bytesOf(image: FetchedImage): Uint8Array {
  invariant(image.kind === "fetched", "an image without a validator cannot be unchanged");
  return image.bytes;
}
