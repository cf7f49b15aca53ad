/** Where the chunks of prompts end: at the budget, at images, and where the KV cache or the decoder wants it. */
import { embeddedSpan } from "../multimodal/placeholder.ts";
import type { ImageHolds } from "./image-holds.ts";
import type { PrefillChunk } from "./scheduler-output.ts";
import type { Sequence } from "./sequence.ts";
import { costOfPromptToken } from "./step-limit.ts";

export interface ChunkOptions {
  /** See `DecoderShape.keepsImagesWhole`. Default false. */
  readonly keepsImagesWhole?: boolean | undefined;
  /** See `DecoderShape.widensPrompts`. Default false. */
  readonly widensPrompts?: boolean | undefined;
}

export class ChunkPlanner {
  readonly #options: ChunkOptions;
  readonly #imageHolds: ImageHolds;

  constructor(options: ChunkOptions, imageHolds: ImageHolds) {
    this.#options = options;
    this.#imageHolds = imageHolds;
  }

  /**
   * The sequence's next chunk, which costs at most `maxNumTokens` unless it cannot be smaller; null if its next image has
   * no room in the encoder cache or is not encoded yet. Holds the chunk's images.
   */
  plan(sequence: Sequence, maxNumTokens: number): PrefillChunk | null {
    const firstToken = sequence.numComputedTokens;
    const nextEnd = sequence.chunkEnds.find((end) => end > firstToken) ?? Infinity;
    const replayEnd =
      this.#options.widensPrompts === true ? Math.max(sequence.numPromptTokens, firstToken + 1) : Infinity;
    const affordable = Math.ceil(maxNumTokens / costOfPromptToken(sequence));
    const room = Math.min(Math.max(affordable, this.fewestTokens(sequence)), maxNumTokens);
    const wantedEnd = Math.min(sequence.numTokensToPrefill, nextEnd, replayEnd, firstToken + room);
    const { endToken, imagesToEncode } = this.#imageHolds.hold(sequence, this.#endOfWholeImages(sequence, wantedEnd));
    const numTokens = endToken - firstToken;
    return numTokens > 0 ? { sequence, firstToken, numTokens, imagesToEncode } : null;
  }

  /** The fewest tokens that the next run of the sequence can compute: 1, or the rest of an image that must be whole. */
  fewestTokens(sequence: Sequence): number {
    if (this.#options.keepsImagesWhole !== true || !sequence.isPrefilling) return 1;
    const first = sequence.numComputedTokens;
    const span = sequence.images.map(embeddedSpan).find(({ start, end }) => start <= first && first < end);
    return span === undefined ? 1 : span.end - first;
  }

  /** `wantedEnd`, or the start of an image that would otherwise be cut there. */
  #endOfWholeImages({ images, numComputedTokens }: Sequence, wantedEnd: number): number {
    if (this.#options.keepsImagesWhole !== true) return wantedEnd;
    const cut = images.map(embeddedSpan).find(({ start, end }) => start < wantedEnd && wantedEnd < end);
    return cut === undefined ? wantedEnd : Math.max(cut.start, numComputedTokens);
  }
}
