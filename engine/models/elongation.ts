/** A bound on the shape of pictures, for models in which an elongated picture has more embeddings than a square. */
import { EngineError } from "../contract/errors.ts";
import type { ImageSize } from "../multimodal/processing-info.ts";

/** As in transformers' processor of Qwen2-VL. */
export const MOST_ELONGATED = 200;

/**
 * @param picture The size that an error shows, if the checked one is not that of the picture.
 * @throws EngineError `invalid_image` for a more elongated size.
 */
export function refuseElongated({ width, height }: ImageSize, picture: ImageSize = { width, height }): void {
  const elongation = Math.max(width, height) / Math.min(width, height);
  if (elongation <= MOST_ELONGATED) return;
  throw new EngineError(
    "invalid_image",
    `The image has ${picture.width}x${picture.height} pixels, an aspect ratio of ${elongation}; the limit is ${MOST_ELONGATED}.`,
  );
}
