/** Assigns memory of the KV cache to sequences. The scheduler uses both layouts through this interface. */
import type { Sequence } from "../scheduler/sequence.ts";
import type { SlotTransfer } from "./slot-transfer.ts";

/** Memory found for a waiting sequence. Valid until anything else is taken or released. */
export interface KvPlacement {
  /** Leading tokens whose keys and values are reused. At least one token remains to be computed. */
  readonly numCachedTokens: number;
  /** See `Sequence`. Left out: none. */
  readonly chunkEnds?: readonly number[];
  /** Gives the memory to the sequence. Returns the transfers to perform before its first chunk. */
  take(): readonly SlotTransfer[];
}

/** Size of the KV cache in vLLM's units. */
export interface KvCapacity {
  /** Tokens of one block. A slot is a block as long as the longest sequence. */
  readonly blockSize: number;
  readonly numBlocks: number;
  /** The largest number of tokens that the cache holds at once. */
  readonly numTokens: number;
}

export interface KvManager {
  readonly capacity: KvCapacity;
  /** The number of further sequences that may run. */
  readonly numFreeSequences: number;
  /** Fraction of the cache that running sequences use, 0 to 1. */
  readonly usage: number;
  /** Whether a reusable prefix is looked up for the sequence. */
  looksUpPrefix(sequence: Sequence): boolean;
  /**
   * Returns null if the sequence should wait, for room or for a prefix that a running sequence is about to compute.
   * Changes nothing. Call it while `numFreeSequences` is above 0.
   *
   * @param stalled Running sequences whose prefixes are not waited for. Default: none.
   */
  tryPlace(sequence: Sequence, stalled?: ReadonlySet<Sequence>): KvPlacement | null;
  /** The number of tokens, after those it has computed, for which the sequence has room or can be given room. */
  numTokensWithRoom(sequence: Sequence): number;
  /**
   * Gives the sequence room for its tokens before `endToken`. At most `numTokensWithRoom` of them may be new. Returns the
   * transfers to perform before they are computed.
   */
  reserve(sequence: Sequence, endToken: number): readonly SlotTransfer[];
  /** Makes the keys and values of `numComputedTokens` tokens reusable. Call it after each successful run. */
  keepComputed(sequence: Sequence): void;
  /** Forgets keys and values behind the sequence's computed tokens: those of a draft that has ended. */
  forgetDraft(sequence: Sequence): void;
  /**
   * Takes the memory back. With `keepsTokens`, later prompts may reuse what was kept. Safe to call for a sequence that
   * holds nothing.
   */
  release(sequence: Sequence, keepsTokens: boolean): void;
}
