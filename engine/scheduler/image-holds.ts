/** References of sequences to images in the encoder cache, and the images that they wait for. */
import type { ImageFeature } from "../core/engine-request.ts";
import { numEmbeddingsOf } from "../multimodal/placeholder.ts";
import { embeddingsField } from "../multimodal/processed-item.ts";
import type { EncoderCache } from "../vision/encoder-cache.ts";
import type { Sequence } from "./sequence.ts";

/** Changes the held images of sequences. */
export class ImageHolds {
  readonly #encoderCache: EncoderCache;
  readonly #encodesInBackground: boolean;

  constructor(encoderCache: EncoderCache, encodesInBackground: boolean) {
    this.#encoderCache = encoderCache;
    this.#encodesInBackground = encodesInBackground;
  }

  /**
   * References the images before `wantedEnd`. The chunk ends before the first image for which the cache has no room. It is
   * empty while it waits for an image: if it ended there, its size, and with it the rounding of a quantised model, would
   * depend on when the image is encoded. Images behind that one are not referenced yet, so it is the last one that is held.
   */
  hold(sequence: Sequence, wantedEnd: number): { endToken: number; imagesToEncode: ImageFeature[] } {
    const nothing = { endToken: sequence.numComputedTokens, imagesToEncode: [] };
    const chunkUntil = (endToken: number) => ({ endToken, imagesToEncode: this.#toEncode(sequence, endToken) });
    const awaited = this.awaitedBy(sequence);
    if (awaited !== null) return awaited.placeholder.offset < wantedEnd ? nothing : chunkUntil(wantedEnd);
    while (sequence.endHeldImage < sequence.images.length) {
      const image = sequence.images[sequence.endHeldImage]!;
      const { offset } = image.placeholder;
      if (offset >= wantedEnd) break;
      if (this.#encoderCache.tryAcquire(image.mmHash, numEmbeddingsOf(image)) === null) return chunkUntil(offset);
      sequence.endHeldImage++;
      if (this.#isAwaited(image)) return nothing;
    }
    return chunkUntil(wantedEnd);
  }

  /** Held images before `endToken` without embeddings. The chunk may have waited for another image since it held them. */
  #toEncode({ images, firstHeldImage, endHeldImage }: Sequence, endToken: number): ImageFeature[] {
    return images
      .slice(firstHeldImage, endHeldImage)
      .filter(({ mmHash, placeholder }) => placeholder.offset < endToken && !this.#encoderCache.has(mmHash));
  }

  /** The image that the sequence waits for; null if there is none. */
  awaitedBy({ images, firstHeldImage, endHeldImage }: Sequence): ImageFeature | null {
    const image = firstHeldImage < endHeldImage ? images[endHeldImage - 1] : undefined;
    return image !== undefined && this.#isAwaited(image) ? image : null;
  }

  /** Whether an image of the sequence must be encoded in the background before all of it can be computed. */
  needsEncoding({ images }: Sequence): boolean {
    return images.some((image) => this.#isAwaited(image));
  }

  /** Releases held images up to the first one that is not done. */
  release(sequence: Sequence, isDone: (image: ImageFeature) => boolean): void {
    while (sequence.firstHeldImage < sequence.endHeldImage && isDone(sequence.images[sequence.firstHeldImage]!)) {
      this.#encoderCache.release(sequence.images[sequence.firstHeldImage++]!.mmHash);
    }
  }

  /** Releases all held images, as if none had been needed yet. */
  drop(sequence: Sequence): void {
    const { firstHeldImage } = sequence;
    this.release(sequence, () => true);
    sequence.firstHeldImage = firstHeldImage;
    sequence.endHeldImage = firstHeldImage;
  }

  /** Whether an image is encoded in the background, and is not yet. */
  #isAwaited({ mmHash, tensors }: ImageFeature): boolean {
    return this.#encodesInBackground && !tensors.has(embeddingsField) && !this.#encoderCache.has(mmHash);
  }
}
