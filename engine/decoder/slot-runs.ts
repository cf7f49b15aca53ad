/** Divides the work of a step into runs of the slot layout: ranges of slots that decode, and prompts. */
import type { SlotRange } from "../kv/kv-slots.ts";
import { isReplayedToken } from "../scheduler/scheduler-output.ts";
import type { PrefillChunk } from "../scheduler/scheduler-output.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import type { DecoderRun } from "./decoder.ts";

export interface SlotRunOptions {
  /** Whether replayed tokens of several sequences are computed together. */
  readonly joinsReplays: boolean;
  /** Whether short prompts are computed together. */
  readonly packsPrompts: boolean;
}

/** See `Decoder.planRuns`. `planRanges` covers slots in ascending order. */
export function planSlotRuns(
  decodes: readonly Sequence[],
  chunks: readonly PrefillChunk[],
  planRanges: (slots: readonly number[], hasPrompts: boolean) => SlotRange[],
  { joinsReplays, packsPrompts }: SlotRunOptions,
): DecoderRun[] {
  const replays = joinsReplays ? chunks.filter(isReplayedToken) : [];
  const prompts = chunks.filter((chunk) => !replays.includes(chunk));
  const rangesOf = (sequences: readonly Sequence[]): SlotRange[] => {
    const slots = sequences.map(({ kvSlot }) => kvSlot!).sort((left, right) => left - right);
    return planRanges(slots, chunks.length > 0);
  };
  const replayRanges = replays.length === 0 ? [] : rangesOf(replays.map(({ sequence }) => sequence));
  return [
    ...rangesOf(decodes).map((range) => ({
      decodes: decodes.filter(({ kvSlot }) => contains(range, kvSlot!)),
      chunks: [],
    })),
    ...replayRanges.map((range) => ({
      decodes: [],
      chunks: replays.filter(({ sequence }) => contains(range, sequence.kvSlot!)),
    })),
    ...(packsPrompts ? packPrompts(prompts) : prompts.map((chunk) => [chunk])).map((pack) => ({
      decodes: [],
      chunks: pack,
    })),
  ];
}

function contains({ firstSlot, numSlots }: SlotRange, slot: number): boolean {
  return slot >= firstSlot && slot < firstSlot + numSlots;
}

/**
 * A run costs as much as 24 tokens on two cores (135M parameters, int8), because it reads all weights. A prompt joins a
 * pack only if it adds less than that in padding and tokens that its slot has already.
 */
const MAX_EXTRA_TOKENS = 16;
/** Larger packs save hardly any time: from 64 tokens on, a run takes as long as its matrix products. */
const MAX_PACKED_TOKENS = 256;

/**
 * Chunks without images at the start of their prompts, in packs of neighbouring slots; other chunks alone. Attention takes
 * several tokens of several sequences only if none has earlier tokens, so a pack computes all tokens of its prompts up to
 * the end of the chunks. The few that slots have already are usually those with which a chat template begins.
 */
export function packPrompts(chunks: readonly PrefillChunk[]): PrefillChunk[][] {
  const packs: PrefillChunk[][] = [];
  let longest = 0;
  let numTokens = 0;
  for (const chunk of chunks.toSorted((left, right) => left.sequence.kvSlot! - right.sequence.kvSlot!)) {
    const pack = packs.at(-1);
    const newLongest = Math.max(longest, endOf(chunk));
    const newNumTokens = newLongest * ((pack?.length ?? 0) + 1);
    const numExtra = newNumTokens - numTokens - chunk.numTokens;
    if (
      pack !== undefined &&
      areNeighbours(pack.at(-1)!, chunk) &&
      newNumTokens <= MAX_PACKED_TOKENS &&
      numExtra <= MAX_EXTRA_TOKENS
    ) {
      pack.push(chunk);
      longest = newLongest;
      numTokens = newNumTokens;
      continue;
    }
    packs.push([chunk]);
    longest = endOf(chunk);
    numTokens = chunk.numTokens;
  }
  return packs;
}

function endOf({ firstToken, numTokens }: PrefillChunk): number {
  return firstToken + numTokens;
}

function areNeighbours(before: PrefillChunk, { sequence }: PrefillChunk): boolean {
  const haveImages = before.sequence.images.length + sequence.images.length > 0;
  return !haveImages && sequence.kvSlot === before.sequence.kvSlot! + 1;
}
