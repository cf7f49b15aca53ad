/** What can be known of a model's inputs without looking at one. */

/** The kinds of items there are; each counts its items by itself. */
export type Modality = "image";

export interface ImageSize {
  readonly width: number;
  readonly height: number;
}

/** Edges that are left open are bounded by the model alone. */
export interface LargestSize {
  readonly width?: number | undefined;
  readonly height?: number | undefined;
}

export interface ProcessingInfo {
  /** Most items of a prompt; null is any number. A modality that is missing is not supported. */
  readonly supportedLimits: Readonly<Partial<Record<Modality, number | null>>>;
  /** Fewest tokens that a picture takes in a prompt. */
  readonly minTokensPerItem: number;
  /** Most embeddings that an item has, and that one may bring along. */
  readonly maxTokensPerItem: number;
  /** A picture of this size has `maxTokensPerItem` embeddings. */
  readonly imageSizeWithMostFeatures: ImageSize;
  /** Embeddings of a picture of this size, as the vision encoder computes them. */
  numImageTokens(size: ImageSize): number;
}

/** Most items that a prompt may have: the lower of what is set and what the model supports; 0 where it takes none. */
export function allowedLimit({ supportedLimits }: ProcessingInfo, modality: Modality, configured: number): number {
  const supported = supportedLimits[modality];
  if (supported === undefined) return 0;
  return supported === null ? configured : Math.min(supported, configured);
}
