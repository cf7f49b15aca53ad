/** Groups the KV slots that decode into ranges. Each range runs as one batch. */

export interface SlotRange {
  readonly firstSlot: number;
  readonly numSlots: number;
}

/**
 * An idle row costs about as much as a row that decodes. A separate run costs about as much as a few rows; with
 * quantised weights, a step of one sequence takes twice what a row adds to a batch. A wider gap therefore splits the
 * range.
 */
export const MAX_GAP = 2;

/**
 * Covers `slots` (ascending, no duplicates) with ranges of neighbours in ascending order. Slots in between that are not
 * listed are computed as well.
 */
export function coverSlots(slots: readonly number[], maxSlotsPerRun: number): SlotRange[] {
  const ranges: SlotRange[] = [];
  let firstSlot = 0;
  for (let index = 0; index < slots.length; index++) {
    const slot = slots[index]!;
    if (index === 0) firstSlot = slot;
    const next = slots[index + 1];
    const goesOn = next !== undefined && next - slot - 1 <= MAX_GAP && next - firstSlot < maxSlotsPerRun;
    if (goesOn) continue;
    ranges.push({ firstSlot, numSlots: slot - firstSlot + 1 });
    if (next !== undefined) firstSlot = next;
  }
  return ranges;
}
