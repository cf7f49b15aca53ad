/** Decides which copy of the model computes a request. */
import { ENOUGH_SEQUENCES } from "../contract/data-parallel.ts";
import type { KnownPrefix } from "./prefix-routes.ts";

/** A copy, as far as the decision depends on it. */
export interface CopyLoad {
  /** That were sent to it and have not ended. */
  readonly numSequences: number;
  /** 0 to 1. */
  readonly kvCacheUsage: number;
}

export interface CopyLimits {
  /** Also of those that are not loaded yet. */
  readonly numCopies: number;
  /** Whether little work goes to one copy, because it has the threads of all copies while the others rest. */
  readonly gathers: boolean;
  /** That a copy computes at once. */
  readonly maxNumSequences: number;
}

/** A copy gets all requests only while its part of the memory has room for them. */
const MAX_KV_USAGE = 0.5;

/** While there is much work, a copy that knows this many tokens of a prompt may have one sequence more than another. */
const TOKENS_PER_MORE_SEQUENCE = 128;
const MAX_MORE_SEQUENCES = 2;

/** While there is little, a prompt goes to a resting copy that knows this much of it. Both then have fewer threads. */
const MANY_KNOWN_TOKENS = 512;

/**
 * Little work goes to the busiest copy, and much to the least busy one. A copy that knows a part of the prompt is preferred.
 *
 * @param copies At least one. The earliest of those that are equally suited is chosen.
 * @param known Null if no copy knows a part of the prompt.
 */
export function chooseCopy<Copy extends CopyLoad>(
  copies: readonly Copy[],
  known: KnownPrefix<Copy> | null,
  limits: CopyLimits,
): Copy {
  const busiest = busiestOf(copies);
  if (!needsAllCopies(copies, limits)) {
    const allRest = busiest.numSequences === 0;
    return known !== null && (allRest || known.numTokens >= MANY_KNOWN_TOKENS) ? busiestOf(known.targets) : busiest;
  }
  const leastBusy = leastBusyOf(copies);
  if (known === null) return leastBusy;
  const knowing = leastBusyOf(known.targets);
  const numMore = Math.min(MAX_MORE_SEQUENCES, Math.floor(known.numTokens / TOKENS_PER_MORE_SEQUENCE));
  return knowing.numSequences <= leastBusy.numSequences + numMore ? knowing : leastBusy;
}

/** Whether one copy can compute so much that the others are worth loading only when there is more. */
export function canLoadLater({ numCopies, gathers, maxNumSequences }: CopyLimits): boolean {
  return gathers && maxNumSequences >= ENOUGH_SEQUENCES * numCopies;
}

/** Whether the next request should not go to the busiest copy. */
export function needsAllCopies(
  copies: readonly CopyLoad[],
  { numCopies, gathers, maxNumSequences }: CopyLimits,
): boolean {
  const busiest = busiestOf(copies);
  const numAll = copies.reduce((sum, copy) => sum + copy.numSequences, 0);
  const hasRoom = busiest.numSequences < maxNumSequences && busiest.kvCacheUsage < MAX_KV_USAGE;
  return !gathers || !hasRoom || numAll >= ENOUGH_SEQUENCES * numCopies;
}

function leastBusyOf<Copy extends CopyLoad>(copies: readonly Copy[]): Copy {
  return copies.reduce((best, copy) => (copy.numSequences < best.numSequences ? copy : best));
}

function busiestOf<Copy extends CopyLoad>(copies: readonly Copy[]): Copy {
  return copies.reduce((best, copy) => (copy.numSequences > best.numSequences ? copy : best));
}
