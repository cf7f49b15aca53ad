/** What is moved between KV slots before a step computes anything. */

export type SlotTransfer =
  /** The first `numTokens` positions of one slot come to be those of another as well. */
  | { readonly kind: "copy"; readonly fromSlot: number; readonly toSlot: number; readonly numTokens: number }
  /** The first `numTokens` positions change places; 0 where nothing of a slot is wanted any more. */
  | { readonly kind: "swap"; readonly slots: readonly [number, number]; readonly numTokens: readonly [number, number] };
