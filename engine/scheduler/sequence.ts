/** The engine's record of one generation. */
import type { EngineRequest, ImageFeature } from "../core/engine-request.ts";
import type { PromptPositions } from "../multimodal/prompt-positions.ts";
import type { FinishReason } from "../contract/request-output.ts";
import type { CompiledGrammar } from "../structured-output/compiled-grammar.ts";
import type { SamplingParams } from "../contract/sampling-params.ts";
import { endTokenOf } from "../vision/image-span.ts";
import { createSequenceTokens } from "./sequence-tokens.ts";
import type { SequenceTokens } from "./sequence-tokens.ts";

/** Mutable: the scheduler is the only one to change it. */
export class Sequence {
  readonly requestId: string;
  readonly promptTokenIds: readonly number[];
  /** In the order of their placeholders. */
  readonly images: readonly ImageFeature[];
  /** Null where every token's position is the place it stands at. */
  readonly positions: PromptPositions | null;
  readonly samplingParams: SamplingParams;
  /** None of them is empty. */
  readonly badWordsTokenIds: readonly (readonly number[])[];
  readonly grammar: CompiledGrammar | null;
  readonly seed: number;
  /** The live list that logits processors hold; do not replace. */
  readonly outputTokenIds: number[] = [];
  /** What its keys and values are computed from; its KV slot remembers it beyond the sequence's end. */
  readonly tokens: SequenceTokens;
  /** Tokens whose keys and values lie in the KV slot. */
  numComputedTokens = 0;
  /** Prompt tokens whose KV was there already when the sequence was admitted. */
  numCachedTokens = 0;
  /** Null while waiting and once finished. */
  kvSlot: number | null = null;
  finishReason: FinishReason | null = null;
  /** `images[firstHeldImage]` up to `images[endHeldImage]`, exclusive, are referenced in the encoder cache. */
  firstHeldImage = 0;
  endHeldImage = 0;

  constructor(request: EngineRequest) {
    this.requestId = request.requestId;
    this.promptTokenIds = request.promptTokenIds;
    this.images = request.images;
    this.positions = request.positions ?? null;
    this.samplingParams = request.samplingParams;
    this.badWordsTokenIds = request.badWordsTokenIds;
    this.grammar = request.grammar;
    this.seed = request.seed;
    this.tokens = createSequenceTokens(request, this.outputTokenIds);
  }

  get numPromptTokens(): number {
    return this.promptTokenIds.length;
  }

  /** Prompt and output, the newest token included, which is not computed yet. */
  get numTokens(): number {
    return this.promptTokenIds.length + this.outputTokenIds.length;
  }

  get isPrefilling(): boolean {
    return this.numComputedTokens < this.promptTokenIds.length;
  }

  /** Has the prompt begin after the tokens that are reused; images that lie among them whole are not needed. */
  skipCachedTokens(numTokens: number): void {
    this.numCachedTokens = numTokens;
    this.numComputedTokens = numTokens;
    const firstImage = this.images.findIndex((image) => endTokenOf(image) > numTokens);
    this.firstHeldImage = firstImage === -1 ? this.images.length : firstImage;
    this.endHeldImage = this.firstHeldImage;
  }
}
