/** The engine's record of one generation, what ends it, and the tokens that it shares with others. */
import type { FinishReason, TokenStopReason } from "../contract/request-output.ts";
import type { SamplingParams } from "../contract/sampling-params.ts";
import type { EngineRequest, ImageFeature, ThinkingBudget } from "../core/engine-request.ts";
import { endTokenOf } from "../multimodal/placeholder.ts";
import type { PromptPositions } from "../multimodal/prompt-positions.ts";
import type { CompiledGrammar } from "../structured-output/compiled-grammar.ts";
import { RepetitionDetector } from "./repetition-detector.ts";
import { nameOfAllImages } from "./whole-images.ts";

/** Tokens that may follow the newest token of a sequence. They are computed together with it, in one run. */
export interface Draft {
  /** The index in the sequence that the first token of the draft would have. */
  readonly firstToken: number;
  /** At least one. */
  readonly tokenIds: readonly number[];
}

/** Mutable; only the scheduler changes it. */
export class Sequence {
  readonly requestId: string;
  /** Lower values go first. */
  readonly priority: number;
  /** Its number among the sequences of the scheduler, in order of arrival. */
  readonly arrival: number;
  readonly promptTokenIds: readonly number[];
  /** In the order of their placeholders. */
  readonly images: readonly ImageFeature[];
  /** Null if the position of every token is its index. */
  readonly positions: PromptPositions | null;
  readonly samplingParams: SamplingParams;
  /** Each has at least one token. */
  readonly badWordsTokenIds: readonly (readonly number[])[];
  readonly beginSuppressedTokenIds: readonly number[] | undefined;
  readonly thinkingBudget: ThinkingBudget | undefined;
  readonly grammar: CompiledGrammar | null;
  readonly seed: number;
  /** Whether the output is the decoder's for every token of the prompt. */
  readonly poolsTokens: boolean;
  /** Follows the output; null if a loop does not end it. */
  readonly repetitionDetector: RepetitionDetector | null;
  /** The live list that logits processors hold; do not replace. */
  readonly outputTokenIds: number[] = [];
  /** The inputs of its keys and values. The KV slot keeps them after the sequence ends. */
  readonly tokens: SequenceTokens;
  /** Tokens whose keys and values are in the KV cache. */
  numComputedTokens = 0;
  /** Prompt tokens whose keys and values were reused when the sequence was first admitted. */
  numCachedTokens = 0;
  /** When the sequence was first scheduled, in milliseconds since the epoch; 0 before. */
  scheduledMs = 0;
  /**
   * Leading tokens that are computed in chunks, before the sequence decodes: the prompt, and after a preemption the
   * output up to then as well.
   */
  numTokensToPrefill: number;
  /** Tokens at which a chunk ends, because the recurrent states after them are kept; ascending. */
  chunkEnds: readonly number[] = [];
  /**
   * Computed with the newest token, or to be computed with it, and right so far. Keys and values of the rest may be in the
   * KV cache. Null without speculative decoding.
   */
  draft: Draft | null = null;
  numPreemptions = 0;
  /** Prompt tokens that the statistics contain; a preempted prompt is counted once. */
  numCountedTokens = 0;
  /** In the slot layout; null while waiting and after the end. */
  kvSlot: number | null = null;
  /**
   * In the paged layout: ids of the blocks that hold its tokens, in order. Empty while waiting and after the end. The
   * live list of the KV manager.
   */
  readonly blockTable: number[] = [];
  /** In the paged layout: its pair of rows of recurrent states; null while waiting and after the end. */
  statePair: number | null = null;
  /** In the paged layout: rows that receive its recurrent states, by the `chunkEnds` after which they are copied. */
  snapshotRows: ReadonlyMap<number, number> = new Map();
  finishReason: FinishReason | null = null;
  /**
   * The encoder cache holds references for `images[firstHeldImage]` up to, but not including, `images[endHeldImage]`.
   */
  firstHeldImage = 0;
  endHeldImage = 0;

  /** @param joinsImages See `DecoderShape`. */
  constructor(request: EngineRequest, arrival = 0, joinsImages = false) {
    this.requestId = request.requestId;
    this.priority = request.priority ?? 0;
    this.arrival = arrival;
    this.promptTokenIds = request.promptTokenIds;
    this.images = request.images;
    this.positions = request.positions ?? null;
    this.samplingParams = request.samplingParams;
    this.badWordsTokenIds = request.badWordsTokenIds;
    this.beginSuppressedTokenIds = request.beginSuppressedTokenIds;
    this.thinkingBudget = request.thinkingBudget;
    this.grammar = request.grammar;
    this.seed = request.seed;
    this.poolsTokens = request.poolsTokens ?? false;
    const { repetitionDetection } = request.samplingParams;
    this.repetitionDetector = repetitionDetection === null ? null : new RepetitionDetector(repetitionDetection);
    this.numTokensToPrefill = request.promptTokenIds.length;
    this.tokens = createSequenceTokens(request, this.outputTokenIds, joinsImages);
  }

  get numPromptTokens(): number {
    return this.promptTokenIds.length;
  }

  /** Prompt and output, including the newest token, which is not computed yet. */
  get numTokens(): number {
    return this.promptTokenIds.length + this.outputTokenIds.length;
  }

  /** Of the model's length: the tokens, or the positions up to the newest one if these are further. */
  get numPositions(): number {
    const ahead = this.positions === null ? 0 : this.positions.next - this.numPromptTokens;
    return this.numTokens + Math.max(ahead, 0);
  }

  get isPrefilling(): boolean {
    return this.numComputedTokens < this.numTokensToPrefill;
  }

  /** Whether the logits of each token of its prompt are wanted. A prompt that is computed again has returned them. */
  get needsPromptLogprobs(): boolean {
    return this.samplingParams.promptLogprobs !== null && this.outputTokenIds.length === 0;
  }

  /** Whether rows of each token of its prompt are wanted, so that no token of it may be taken from another sequence. */
  get wantsPromptRows(): boolean {
    return this.poolsTokens || this.samplingParams.promptLogprobs !== null;
  }

  /** The token ids from `firstToken` up to, but not including, `endToken`, of prompt and output. */
  tokenIdsBetween(firstToken: number, endToken: number): number[] {
    const tokenIds = this.promptTokenIds.slice(firstToken, endToken);
    const numPrompt = this.numPromptTokens;
    if (endToken <= numPrompt) return tokenIds;
    return [...tokenIds, ...this.outputTokenIds.slice(Math.max(firstToken - numPrompt, 0), endToken - numPrompt)];
  }

  /** Starts the prompt after the reused tokens. Images that lie completely within them are not needed. */
  skipCachedTokens(numTokens: number): void {
    if (this.numPreemptions === 0) this.numCachedTokens = numTokens;
    this.numComputedTokens = numTokens;
    const firstImage = this.images.findIndex((image) => endTokenOf(image) > numTokens);
    this.firstHeldImage = firstImage === -1 ? this.images.length : firstImage;
    this.endHeldImage = this.firstHeldImage;
  }

  /** Goes back to waiting without keys and values. All tokens, the output included, are computed again. */
  preempt(): void {
    this.numPreemptions++;
    this.numComputedTokens = 0;
    this.numTokensToPrefill = this.numTokens;
    this.firstHeldImage = 0;
    this.endHeldImage = 0;
  }
}

/** An image without its pixels. A KV slot keeps it long after its request has ended. */
interface ImageTokens {
  /** Of the image; for joined images, the name of all. */
  readonly mmHash: string;
  readonly offset: number;
  readonly length: number;
}

/** The inputs that determine keys and values. */
export interface SequenceTokens {
  readonly promptTokenIds: readonly number[];
  /** The sequence's live list. */
  readonly outputTokenIds: readonly number[];
  /** In the order of their placeholders. */
  readonly images: readonly ImageTokens[];
  /** As in `Sequence`. Images that the model does not see have positions, too. */
  readonly positions: PromptPositions | null;
  readonly cacheSalt: string | null;
  /** As in `EngineRequest`. */
  readonly adapterId: number;
}

function createSequenceTokens(
  { promptTokenIds, images, positions, cacheSalt, adapterId = 0 }: EngineRequest,
  outputTokenIds: readonly number[],
  joinsImages: boolean,
): SequenceTokens {
  const name = joinsImages && images.length > 1 ? nameOfAllImages(promptTokenIds, images) : null;
  const placed = images.map(({ mmHash, placeholder: { offset, length } }) => ({
    mmHash: name ?? mmHash,
    offset,
    length,
  }));
  return { promptTokenIds, outputTokenIds, images: placed, positions: positions ?? null, cacheSalt, adapterId };
}

/** The position, on one of three axes, of the token at an index of prompt and output. */
export function positionOf({ promptTokenIds, positions }: SequenceTokens, place: number, axis: number): number {
  if (positions === null) return place;
  const numPrompt = promptTokenIds.length;
  return place < numPrompt ? positions.axes[axis * numPrompt + place]! : positions.next + place - numPrompt;
}

/**
 * The number of leading tokens, at most `limit`, whose keys and values are the same for `known` and for the prompt of
 * `asked`: equal ids at the same positions, the same images at the same places, the same salt and adapter. Placeholders
 * of different images have equal ids, so the shared prefix ends at the first image that differs.
 */
export function numSharedTokens(known: SequenceTokens, asked: SequenceTokens, limit: number): number {
  if (known.cacheSalt !== asked.cacheSalt || known.adapterId !== asked.adapterId) return 0;
  const numTokens = numEqualPositions(known, asked, numEqualTokens(known, asked.promptTokenIds, limit));
  for (let index = 0; ; index++) {
    const left = known.images[index];
    const right = asked.images[index];
    const offset = Math.min(left?.offset ?? Infinity, right?.offset ?? Infinity);
    if (offset >= numTokens) return numTokens;
    const isSame = left?.offset === right?.offset && left?.length === right?.length && left?.mmHash === right?.mmHash;
    if (!isSame) return offset;
  }
}

/** Index loops, because this runs for every slot with every prompt. */
function numEqualTokens(
  { promptTokenIds, outputTokenIds }: SequenceTokens,
  tokenIds: readonly number[],
  limit: number,
): number {
  const numPromptTokens = Math.min(limit, promptTokenIds.length, tokenIds.length);
  for (let index = 0; index < numPromptTokens; index++) {
    if (promptTokenIds[index] !== tokenIds[index]) return index;
  }
  const end = Math.min(limit, promptTokenIds.length + outputTokenIds.length, tokenIds.length);
  for (let index = numPromptTokens; index < end; index++) {
    if (outputTokenIds[index - promptTokenIds.length] !== tokenIds[index]) return index;
  }
  return end;
}

function numEqualPositions(known: SequenceTokens, asked: SequenceTokens, limit: number): number {
  if (known.positions === null && asked.positions === null) return limit;
  for (let place = 0; place < limit; place++) {
    for (let axis = 0; axis < 3; axis++) {
      if (positionOf(known, place, axis) !== positionOf(asked, place, axis)) return place;
    }
  }
  return limit;
}

export interface TokenStop {
  readonly finishReason: FinishReason;
  /** Null for the model's own end token and for length limits. */
  readonly stopReason: TokenStopReason | null;
}

export interface StopLimits {
  readonly eosTokenIds: ReadonlySet<number>;
  readonly maxModelLen: number;
}

/**
 * Ends a sequence by its tokens; stop strings are handled where tokens become text. Checks the newest token in vLLM's
 * order: end token, stop token (neither before `minTokens`), length, repetition (not before `minTokens`). Call it once for
 * each token. Null means that the sequence continues. The end token of a structured output always ends it: before
 * `minTokens` it appears only if the grammar allows nothing else.
 */
export function checkStop(sequence: Sequence, { eosTokenIds, maxModelLen }: StopLimits): TokenStop | null {
  const { samplingParams, outputTokenIds } = sequence;
  const tokenId = outputTokenIds.at(-1)!;
  // It follows every token, also those before `minTokens`.
  const isLoop = sequence.repetitionDetector?.readNewest(outputTokenIds) ?? false;
  const isLongEnoughToStop = outputTokenIds.length >= samplingParams.minTokens;
  if (!samplingParams.ignoreEos && eosTokenIds.has(tokenId) && (isLongEnoughToStop || sequence.grammar !== null)) {
    return { finishReason: "stop", stopReason: null };
  }
  if (isLongEnoughToStop && samplingParams.stopTokenIds.includes(tokenId)) {
    return { finishReason: "stop", stopReason: tokenId };
  }
  const isFull = sequence.numPositions >= maxModelLen;
  const isLongEnough = samplingParams.maxTokens !== null && outputTokenIds.length >= samplingParams.maxTokens;
  if (isFull || isLongEnough) return { finishReason: "length", stopReason: null };
  if (isLoop && isLongEnoughToStop) return { finishReason: "repetition", stopReason: "repetition_detected" };
  return null;
}
