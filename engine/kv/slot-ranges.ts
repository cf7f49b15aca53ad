/** Groups the KV slots that decode into the ranges that are run as one batch. */

export interface SlotRange {
  readonly firstSlot: number;
  readonly numSlots: number;
}

/**
 * Rows that ride along cost about as much as rows that decode, a run of its own about as much as a few rows (least
 * with quantised weights: a step of one sequence takes twice what a row adds to a batch). So a wider gap splits.
 */
export const maxGap = 2;

/**
 * Covers `slots` (ascending, no duplicates) with ranges of neighbours in ascending order; slots in between that are
 * not listed ride along.
 */
export function coverSlots(slots: readonly number[], maxSlotsPerRun: number): SlotRange[] {
  const ranges: SlotRange[] = [];
  let firstSlot = 0;
  for (let index = 0; index < slots.length; index++) {
    const slot = slots[index];
    if (index === 0) firstSlot = slot;
    const next = slots[index + 1];
    const goesOn = next !== undefined && next - slot - 1 <= maxGap && next - firstSlot < maxSlotsPerRun;
    if (goesOn) continue;
    ranges.push({ firstSlot, numSlots: slot - firstSlot + 1 });
    firstSlot = next;
  }
  return ranges;
}
