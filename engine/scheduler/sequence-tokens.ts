/** The inputs that determine a sequence's keys and values, and the length of the prefix that two sequences share. */
import type { EngineRequest } from "../core/engine-request.ts";

/** An image without its pixels. A KV slot keeps it long after its request has ended. */
interface ImageTokens {
  readonly mmHash: string;
  readonly offset: number;
  readonly length: number;
}

export interface SequenceTokens {
  readonly promptTokenIds: readonly number[];
  /** The sequence's live list. */
  readonly outputTokenIds: readonly number[];
  /** In the order of their placeholders. */
  readonly images: readonly ImageTokens[];
  readonly cacheSalt: string | null;
}

export function createSequenceTokens(
  { promptTokenIds, images, cacheSalt }: EngineRequest,
  outputTokenIds: readonly number[],
): SequenceTokens {
  const placed = images.map(({ mmHash, placeholder: { offset, length } }) => ({ mmHash, offset, length }));
  return { promptTokenIds, outputTokenIds, images: placed, cacheSalt };
}

/**
 * The number of leading tokens, at most `limit`, whose keys and values are the same for `known` and for the prompt of
 * `asked`: equal ids, the same images at the same places, the same salt. Placeholders of different images have equal
 * ids, so the shared prefix ends at the first image that differs.
 */
export function numSharedTokens(known: SequenceTokens, asked: SequenceTokens, limit: number): number {
  if (known.cacheSalt !== asked.cacheSalt) return 0;
  const numTokens = numEqualTokens(known, asked.promptTokenIds, limit);
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
