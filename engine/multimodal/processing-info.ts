/** Properties of a model's inputs that are known without processing one. */

/** The kinds of items; each counts its items separately. */
export type Modality = "image";

export interface ImageSize {
  readonly width: number;
  readonly height: number;
}

/** Edges that are left out are bounded only by the model. */
export interface LargestSize {
  readonly width?: number | undefined;
  readonly height?: number | undefined;
}

export interface ProcessingInfo {
  /** Maximum number of items per prompt; null means unlimited. A missing modality is not supported. */
  readonly supportedLimits: Readonly<Partial<Record<Modality, number | null>>>;
  /** Minimum number of tokens of a picture in a prompt. */
  readonly minTokensPerItem: number;
  /** Maximum number of embeddings of an item, also of precomputed ones. */
  readonly maxTokensPerItem: number;
  /** A picture of this size has `maxTokensPerItem` embeddings. */
  readonly imageSizeWithMostFeatures: ImageSize;
  /** Number of embeddings that the vision encoder computes for a picture of this size. */
  numImageTokens(size: ImageSize): number;
}

/**
 * Of a model that takes any number of pictures, each with the embeddings that `numImageTokens` counts.
 *
 * @param largest A picture that has as many embeddings as any other.
 */
export function pictureInfo(
  largest: ImageSize,
  { minTokensPerItem, numImageTokens }: Pick<ProcessingInfo, "minTokensPerItem" | "numImageTokens">,
): ProcessingInfo {
  return {
    supportedLimits: { image: null },
    minTokensPerItem,
    maxTokensPerItem: numImageTokens(largest),
    imageSizeWithMostFeatures: largest,
    numImageTokens,
  };
}

/** Maximum number of items in a prompt: the lower of the setting and the model's limit; 0 if the model has none. */
export function allowedLimit({ supportedLimits }: ProcessingInfo, modality: Modality, configured: number): number {
  const supported = supportedLimits[modality];
  if (supported === undefined) return 0;
  return supported === null ? configured : Math.min(supported, configured);
}
