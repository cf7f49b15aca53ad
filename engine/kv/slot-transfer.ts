/** Moves between KV slots that happen before a step computes anything. */

export type KvTransfer =
  /** Copies the first `numTokens` positions of one slot to another. */
  | { readonly kind: "copy"; readonly fromSlot: number; readonly toSlot: number; readonly numTokens: number }
  /**
   * Swaps the first `numTokens` positions of two slots, and their recurrent states; 0 if a slot's tokens are no longer
   * needed.
   */
  | { readonly kind: "swap"; readonly slots: readonly [number, number]; readonly numTokens: readonly [number, number] };

/** Copies the recurrent states of one row to another: slots first, then their snapshots. */
export interface StateTransfer {
  readonly kind: "state";
  readonly fromRow: number;
  readonly toRow: number;
}

/** Gives the memory of a slot's blocks from `firstBlock` on back to the system; see `SlotBlocks`. */
export interface BlockRelease {
  readonly kind: "release";
  readonly slot: number;
  readonly firstBlock: number;
}

export type SlotTransfer = KvTransfer | StateTransfer | BlockRelease;
