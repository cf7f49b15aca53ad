/** Divides the work of a step into runs of the slot layout: ranges of slots that decode, and prompts. */
import type { SlotRange } from "../kv/slot-ranges.ts";
import { isReplayedToken } from "../scheduler/scheduler-output.ts";
import type { PrefillChunk } from "../scheduler/scheduler-output.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import type { DecoderRun } from "./decoder.ts";
import { packPrompts } from "./prompt-packs.ts";

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
