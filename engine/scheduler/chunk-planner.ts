/**
 * How many tokens of prompts a step computes: its budget, and where the chunks end, which is at the budget, at images, and
 * where the KV cache or the decoder wants it.
 */
import type { ImageHolds } from "./image-holds.ts";
import type { PrefillChunk } from "./scheduler-output.ts";
import type { Sequence } from "./sequence.ts";
import { wholeSpans, type ImageRuns, type ImageSpan } from "./whole-images.ts";

/**
 * The logprobs of a token of a prompt take a pass or more over the vocabulary, 1.5 ms with 150,000 tokens, while all
 * other sequences wait for the step.
 */
const COST_OF_LOGPROBS = 8;

/** In tokens of a step. */
function costOfPromptToken({ needsPromptLogprobs }: Sequence): number {
  return needsPromptLogprobs ? COST_OF_LOGPROBS : 1;
}

/** Mutable; for one step: how many tokens of prompts still fit into it. */
export class TokenBudget {
  readonly #enoughPromptTokens: number;
  #numLeft: number;
  #numPromptTokens = 0;

  /** @param enoughPromptTokens A step that has this many tokens of prompts takes no further prompt. */
  constructor(maxNumTokens: number, enoughPromptTokens: number) {
    this.#numLeft = maxNumTokens;
    this.#enoughPromptTokens = enoughPromptTokens;
  }

  /** Tokens that the step may still have, of whichever kind. */
  get tokensLeft(): number {
    return this.#numLeft;
  }

  /** The most tokens that the next chunk of a prompt may have. */
  get promptTokensLeft(): number {
    return this.#numPromptTokens >= this.#enoughPromptTokens ? 0 : this.#numLeft;
  }

  takeDecodes(numTokens: number): void {
    this.#numLeft -= numTokens;
  }

  takePrompt({ sequence, numTokens }: PrefillChunk): void {
    const cost = numTokens * costOfPromptToken(sequence);
    this.#numLeft = Math.max(this.#numLeft - cost, 0);
    this.#numPromptTokens += cost;
  }
}

export interface ChunkOptions extends ImageRuns {
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
    const wholeEnd = this.#endOfWholeImages(sequence, wantedEnd);
    const { endToken, imagesToEncode } = this.#imageHolds.hold(sequence, wholeEnd);
    if (this.#isCut(sequence, endToken) && this.#imageHolds.awaitedBy(sequence) === null) {
      // Another prompt may need the room for the rest of its own images.
      this.#imageHolds.drop(sequence);
      return null;
    }
    const numTokens = endToken - firstToken;
    return numTokens > 0 ? { sequence, firstToken, numTokens, imagesToEncode } : null;
  }

  /** The fewest tokens that the next run of the sequence can compute: 1, or the rest of an image that must be whole. */
  fewestTokens(sequence: Sequence): number {
    if (this.#options.keepsImagesWhole !== true || !sequence.isPrefilling) return 1;
    const first = sequence.numComputedTokens;
    const span = wholeSpans(sequence.images, this.#options).find(({ start, end }) => start <= first && first < end);
    return span === undefined ? 1 : span.end - first;
  }

  /** Whether a run that ends there would begin joined images without the rest of them. */
  #isCut({ images, numComputedTokens }: Sequence, endToken: number): boolean {
    if (this.#options.joinsImages !== true || endToken === numComputedTokens) return false;
    return this.#spanAround(images, endToken) !== undefined;
  }

  #spanAround(images: Sequence["images"], token: number): ImageSpan | undefined {
    return wholeSpans(images, this.#options).find(({ start, end }) => start < token && token < end);
  }

  /** `wantedEnd`, or the start of an image that would otherwise be cut there. */
  #endOfWholeImages({ images, numComputedTokens }: Sequence, wantedEnd: number): number {
    if (this.#options.keepsImagesWhole !== true) return wantedEnd;
    const cut = this.#spanAround(images, wantedEnd);
    return cut === undefined ? wantedEnd : Math.max(cut.start, numComputedTokens);
  }
}
