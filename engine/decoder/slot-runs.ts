/** Divides the work of a step into runs of the slot layout: ranges of slots that decode, and prompts one by one. */
import type { SlotRange } from "../kv/slot-ranges.ts";
import { isReplayedToken } from "../scheduler/scheduler-output.ts";
import type { PrefillChunk } from "../scheduler/scheduler-output.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import type { DecoderRun } from "./decoder.ts";

/**
 * See `Decoder.planRuns`. `planRanges` covers slots in ascending order.
 *
 * @param joinsReplays Whether replayed tokens are computed together with newest tokens. Default false.
 */
export function planSlotRuns(
  decodes: readonly Sequence[],
  chunks: readonly PrefillChunk[],
  planRanges: (slots: readonly number[], hasPrompts: boolean) => SlotRange[],
  joinsReplays = false,
): DecoderRun[] {
  const replays = joinsReplays ? chunks.filter(isReplayedToken) : [];
  const prompts = chunks.filter((chunk) => !replays.includes(chunk));
  const sequences = [...decodes, ...replays.map(({ sequence }) => sequence)];
  const slots = sequences.map(({ kvSlot }) => kvSlot!).sort((left, right) => left - right);
  const ranges = planRanges(slots, prompts.length > 0);
  return [
    ...ranges.map((range) => ({
      decodes: decodes.filter(({ kvSlot }) => contains(range, kvSlot!)),
      chunks: replays.filter(({ sequence }) => contains(range, sequence.kvSlot!)),
    })),
    ...prompts.map((chunk) => ({ decodes: [], chunks: [chunk] })),
  ];
}

function contains({ firstSlot, numSlots }: SlotRange, slot: number): boolean {
  return slot >= firstSlot && slot < firstSlot + numSlots;
}
