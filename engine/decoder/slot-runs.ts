/** Divides the work of a step into runs of the slot layout: ranges of slots that decode, and prompts one by one. */
import { coverSlots } from "../kv/slot-ranges.ts";
import type { SlotRange } from "../kv/slot-ranges.ts";
import type { PrefillChunk } from "../scheduler/scheduler-output.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import type { DecoderRun, TokenSpan } from "./decoder.ts";

/** See `Decoder.planRuns`. A run decodes at most `maxSlotsPerRun` neighbouring slots. */
export function planSlotRuns(
  decodes: readonly Sequence[],
  chunks: readonly PrefillChunk[],
  maxSlotsPerRun: number,
): DecoderRun[] {
  const slots = decodes.map(({ kvSlot }) => kvSlot!).sort((left, right) => left - right);
  const ranges = coverSlots(slots, maxSlotsPerRun);
  return [
    ...ranges.map((range) => ({ decodes: decodes.filter(({ kvSlot }) => contains(range, kvSlot!)), chunks: [] })),
    ...chunks.map((chunk) => ({ decodes: [], chunks: [chunk] })),
  ];
}

/** The range from the lowest to the highest slot of the spans. */
export function rangeOf(spans: readonly TokenSpan[]): SlotRange {
  let [lowest, highest] = [Infinity, -1];
  for (const { sequence } of spans) {
    lowest = Math.min(lowest, sequence.kvSlot!);
    highest = Math.max(highest, sequence.kvSlot!);
  }
  return { firstSlot: lowest, numSlots: highest - lowest + 1 };
}

function contains({ firstSlot, numSlots }: SlotRange, slot: number): boolean {
  return slot >= firstSlot && slot < firstSlot + numSlots;
}
