/** Shortens prompts to a number of tokens without cutting an image. */
import type { ImageMarkers } from "../multimodal/multimodal-processor.ts";

export type TruncationSide = "left" | "right";

/** Tokens of the prompt that stay or go together: an image with its markers. */
export interface TokenRange {
  readonly start: number;
  readonly end: number;
}

export interface TruncatablePrompt {
  readonly numTokens: number;
  /** Tokens at the start that stay in any case, such as the one that begins every text. */
  readonly numPinned: number;
  /** In order, without overlaps. */
  readonly images: readonly TokenRange[];
}

/**
 * The range of tokens to keep behind the pinned ones, at most `maxTokens` with them. `left` keeps the last tokens, as
 * vLLM does, so that the oldest images go first. An image at the cut is removed as a whole, like in
 * text-generation-webui. The range is empty if nothing fits.
 */
export function truncatedRange(
  { numTokens, numPinned, images }: TruncatablePrompt,
  maxTokens: number,
  side: TruncationSide,
): TokenRange {
  if (numTokens <= maxTokens) return { start: Math.min(numPinned, numTokens), end: numTokens };
  const isCut = (at: number) => (image: TokenRange) => image.start < at && at < image.end;
  if (side === "right") {
    const end = Math.max(maxTokens, numPinned);
    return { start: numPinned, end: Math.max(images.find(isCut(end))?.start ?? end, numPinned) };
  }
  const start = Math.min(numTokens, Math.max(numTokens - maxTokens + numPinned, numPinned));
  return { start: images.find(isCut(start))?.end ?? start, end: numTokens };
}

/** Each image with the tokens of its markers, where the prompt has them. A token that is only partly marker counts. */
export function withMarkers(
  tokenIds: readonly number[],
  placeholders: readonly { readonly offset: number; readonly length: number }[],
  { imageStart, imageEnd }: ImageMarkers,
  decode: (tokenIds: readonly number[]) => string,
): TokenRange[] {
  let previousEnd = 0;
  return placeholders.map(({ offset, length }) => {
    const end = offset + length;
    const start =
      offset -
      numMarkerTokens(offset - previousEnd, imageStart, (numTokens) => {
        const text = decode(tokenIds.slice(offset - numTokens, offset)).trimEnd();
        return text.endsWith(imageStart);
      });
    previousEnd =
      end +
      numMarkerTokens(tokenIds.length - end, imageEnd, (numTokens) =>
        decode(tokenIds.slice(end, end + numTokens))
          .trimStart()
          .startsWith(imageEnd),
      );
    return { start, end: previousEnd };
  });
}

/** The fewest tokens next to an image that contain the marker; 0 if it is not there. */
function numMarkerTokens(numAvailable: number, marker: string, contain: (numTokens: number) => boolean): number {
  if (marker === "") return 0;
  // A token has at least one byte. One more may be white space.
  const most = Math.min(numAvailable, Buffer.byteLength(marker) + 1);
  for (let numTokens = 1; numTokens <= most; numTokens++) if (contain(numTokens)) return numTokens;
  return 0;
}
