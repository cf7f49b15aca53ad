/** The number of tokens to which a request lets its prompt be shortened, and what that does to its images. */
import { aboutParameter, EngineError } from "../contract/errors.ts";
import type { PromptRequest } from "../contract/generation-request.ts";
import type { ImageFeature } from "../core/engine-request.ts";
import { noMarkers } from "../multimodal/multimodal-processor.ts";
import type { ImageMarkers, MultiModalProcessor } from "../multimodal/multimodal-processor.ts";
import type { ProcessingInfo } from "../multimodal/processing-info.ts";
import { SequenceSearch } from "../multimodal/sequence-search.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { fewestTokensOf } from "./prompt-parts.ts";
import type { ItemPart } from "./prompt-parts.ts";
import { truncatedRange, withMarkers } from "./truncate-prompt.ts";
import type { TokenRange, TruncationSide } from "./truncate-prompt.ts";

export interface PromptLimit {
  readonly maxTokens: number;
  readonly side: TruncationSide;
  /** Tokens at the start of every text, which stay. */
  readonly prefixTokenIds: readonly number[];
  readonly decode: (tokenIds: readonly number[]) => string;
}

/**
 * Of a request that lets its prompt be shortened. The output has room next to the prompt: a larger `maxTokens` of the
 * request leaves fewer tokens to the prompt.
 *
 * @throws EngineError `invalid_argument` for a number of tokens that the model's length excludes.
 */
export function promptLimitOf(
  { prompt, truncatePromptTokens: numTokens = -1, truncationSide: side = "left", samplingParams }: PromptRequest,
  { tokenizer, maxModelLen }: { readonly tokenizer: Tokenizer; readonly maxModelLen: number },
): PromptLimit {
  if (!Number.isInteger(numTokens) || numTokens < -1 || numTokens === 0) {
    throw refusal("truncatePromptTokens", `must be -1 or at least 1, got ${numTokens}`);
  }
  if (numTokens > maxModelLen) {
    throw refusal("truncatePromptTokens", `is ${numTokens}, more than the model length of ${maxModelLen}`);
  }
  const numOutputTokens = samplingParams?.maxTokens ?? 1;
  if (numOutputTokens >= maxModelLen) {
    throw new EngineError(
      "invalid_argument",
      `maxTokens is ${numOutputTokens}; the model length of ${maxModelLen} leaves no room for a prompt to be truncated.`,
      { parameter: "samplingParams.maxTokens" },
    );
  }
  const room = maxModelLen - numOutputTokens;
  const hasPrefix = (prompt.kind === "text" || prompt.kind === "parts") && prompt.addSpecialTokens;
  return {
    maxTokens: numTokens === -1 ? room : Math.min(numTokens, room),
    side,
    prefixTokenIds: hasPrefix ? tokenizer.prefixIds : [],
    decode: (tokenIds) => tokenizer.decode(tokenIds),
  };
}

export interface ShortenedPrompt {
  readonly tokenIds: readonly number[];
  /** Indices of the images that stay. */
  readonly kept: readonly number[];
}

/**
 * Removes tokens and images before the images are loaded: those that go whatever the sizes of the images. Returns the
 * prompt as it is if its tokens do not show where the images are.
 */
export function shortenUnloaded(
  tokenIds: readonly number[],
  parts: readonly ItemPart[],
  { processor, info }: { readonly processor: MultiModalProcessor; readonly info: ProcessingInfo },
  limit: PromptLimit,
): ShortenedPrompt {
  const unchanged = { tokenIds, kept: [...parts.keys()] };
  const { imagePlaceholderTokenIds: placeholder, markers } = processor;
  const offsets = offsetsOf(tokenIds, placeholder);
  if (offsets.length !== parts.length) return unchanged;
  const images = withMarkers(
    tokenIds,
    offsets.map((offset) => ({ offset, length: placeholder.length })),
    markers ?? noMarkers,
    limit.decode,
  );
  /** Tokens that an image adds at least. */
  const added = parts.map((part) => Math.max(0, fewestTokensOf(part, { processor, info }) - placeholder.length));
  let numAdded = 0;
  const expanded = images.map(({ start, end }, index) => {
    const before = numAdded;
    numAdded += added[index] ?? 0;
    return { start: start + before, end: end + numAdded };
  });
  const numPinned = numPinnedTokens(tokenIds, limit);
  const numTokens = tokenIds.length + numAdded;
  const range = truncatedRange({ numTokens, numPinned, images: expanded }, limit.maxTokens, limit.side);
  const addedBefore = (at: number): number =>
    expanded.reduce((sum, { end }, index) => (end <= at ? sum + (added[index] ?? 0) : sum), 0);
  return cut(tokenIds, images, numPinned, {
    start: range.start - addedBefore(range.start),
    end: range.end - addedBefore(range.end),
  });
}

/**
 * Shortens a prompt in which every image has its tokens.
 *
 * @throws EngineError `prompt_too_long` if nothing of it fits.
 */
export function shortenExpanded<Feature extends ImageFeature>(
  tokenIds: readonly number[],
  images: readonly Feature[],
  markers: ImageMarkers,
  limit: PromptLimit,
): { readonly tokenIds: readonly number[]; readonly images: readonly Feature[] } {
  const numPinned = numPinnedTokens(tokenIds, limit);
  const placeholders = images.map(({ placeholder }) => placeholder);
  const ranges = withMarkers(tokenIds, placeholders, markers, limit.decode);
  const range = truncatedRange({ numTokens: tokenIds.length, numPinned, images: ranges }, limit.maxTokens, limit.side);
  if (range.start >= range.end) {
    throw new EngineError(
      "prompt_too_long",
      `The prompt has ${tokenIds.length} tokens, and no part of it fits into the ${limit.maxTokens} to which it may be ` +
        "truncated: images are not cut.",
      { parameter: "prompt" },
    );
  }
  const shortened = cut(tokenIds, ranges, numPinned, range);
  const shift = range.start - numPinned;
  return {
    tokenIds: shortened.tokenIds,
    images: shortened.kept.flatMap((index) => images.slice(index, index + 1)).map((image) => movedBack(image, shift)),
  };
}

function movedBack<Feature extends ImageFeature>(image: Feature, by: number): Feature {
  const { placeholder } = image;
  return { ...image, placeholder: { ...placeholder, offset: placeholder.offset - by } };
}

/** Runs `load` for the images from `first` on, and counts all images of the prompt in its errors. */
export async function countingFrom<Result>(first: number, load: () => Promise<Result>): Promise<Result> {
  try {
    return await load();
  } catch (error) {
    const index =
      error instanceof EngineError ? /^prompt\.images\[(\d+)\]$/.exec(error.parameter ?? "")?.[1] : undefined;
    if (!(error instanceof EngineError) || index === undefined || first === 0) throw error;
    throw aboutParameter(error, `prompt.images[${Number(index) + first}]`);
  }
}

function cut(
  tokenIds: readonly number[],
  images: readonly TokenRange[],
  numPinned: number,
  { start, end }: TokenRange,
): ShortenedPrompt {
  return {
    tokenIds: [...tokenIds.slice(0, numPinned), ...tokenIds.slice(start, end)],
    kept: images.flatMap((image, index) => (image.start >= start && image.end <= end ? [index] : [])),
  };
}

function numPinnedTokens(tokenIds: readonly number[], { prefixTokenIds }: PromptLimit): number {
  const isPrefix = prefixTokenIds.every((tokenId, index) => tokenIds[index] === tokenId);
  return isPrefix ? prefixTokenIds.length : 0;
}

function offsetsOf(tokenIds: readonly number[], sequence: readonly number[]): number[] {
  const search = new SequenceSearch(tokenIds);
  const offsets: number[] = [];
  let at = search.find(sequence, 0);
  while (at !== null) {
    offsets.push(at);
    at = search.find(sequence, at + sequence.length);
  }
  return offsets;
}

function refusal(parameter: "truncatePromptTokens", problem: string): EngineError {
  return new EngineError("invalid_argument", `${parameter} ${problem}.`, { parameter });
}
