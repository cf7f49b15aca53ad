/** Where encoded images come from: one implementation a scheme. */

export interface FetchImageOptions {
  /** The source stops at once when it aborts and throws the signal's reason. */
  readonly signal: AbortSignal;
  /** The source stops reading and throws `image_too_large` beyond this. */
  readonly maxImageBytes: number;
}

export interface ImageSource {
  /** URL schemes served, without the colon: "data", "https", "s3". */
  readonly schemes: readonly string[];
  /** Encoded bytes; throws EngineError `invalid_image_reference`, `image_unreachable` or `image_too_large`. */
  fetch(reference: string, options: FetchImageOptions): Promise<Uint8Array>;
}

/** A source that holds connections; who made it closes it. */
export interface ConnectedImageSource extends ImageSource {
  /** Ends its connections; fetches in flight fail. Idempotent. */
  close(): Promise<void>;
}
