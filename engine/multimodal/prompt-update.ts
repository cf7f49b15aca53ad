/** Turns the placeholders of a prompt into as many tokens as their items have features. */
import type { PlaceholderRange } from "./placeholder.ts";

/** What is put into the prompt for one item. */
interface PromptUpdateDetails {
  readonly full: readonly number[];
  /** Which tokens of `full` receive an embedding; null is all. */
  readonly isEmbed: readonly boolean[] | null;
}

/** Rule for one item: the first occurrence of `target` that no other item took makes way for `content`. */
interface PromptReplacement {
  readonly kind: "replacement";
  /** Token ids, matched exactly. Empty matches nothing. */
  readonly target: readonly number[];
  readonly content: PromptUpdateDetails;
}

export type PromptUpdate = PromptReplacement;

export interface UpdatedPrompt {
  readonly tokenIds: readonly number[];
  /** By item, in the order of the updates; null for an item whose target is not in the prompt. */
  readonly placeholders: readonly (PlaceholderRange | null)[];
}

/**
 * Applies one update per item, in rounds as vLLM does: each round takes the earliest match, at or after the end of the
 * last, among the items not yet placed (of several that match there, the first in order). Items that share a target
 * thus take its occurrences in order; items with targets of their own may stand in any order. Targets left over stay
 * as they are. Ranges are recorded while applying, so a token of the prompt that looks like content is never taken
 * for it.
 */
export function applyPromptUpdates(promptTokenIds: readonly number[], updates: readonly PromptUpdate[]): UpdatedPrompt {
  const placeholders: (PlaceholderRange | null)[] = updates.map(() => null);
  const nextMatch = new NextMatches(promptTokenIds);
  const waiting = new Set(updates.keys());
  const tokenIds: number[] = [];
  let end = 0;
  while (waiting.size > 0) {
    let item = -1;
    let start = Number.POSITIVE_INFINITY;
    for (const index of waiting) {
      const match = nextMatch.find(updates[index].target, end);
      if (match === null) waiting.delete(index);
      else if (match < start) [item, start] = [index, match];
    }
    if (item === -1) break;
    const { target, content } = updates[item];
    appendRange(tokenIds, promptTokenIds, end, start);
    placeholders[item] = { offset: tokenIds.length, length: content.full.length, isEmbed: content.isEmbed };
    appendRange(tokenIds, content.full, 0, content.full.length);
    end = start + target.length;
    waiting.delete(item);
  }
  appendRange(tokenIds, promptTokenIds, end, promptTokenIds.length);
  return { tokenIds, placeholders };
}

/** Number of occurrences of `target` that do not overlap. */
export function countMatches(tokenIds: readonly number[], target: readonly number[]): number {
  const matches = new NextMatches(tokenIds);
  let numMatches = 0;
  for (let at = matches.find(target, 0); at !== null; at = matches.find(target, at + target.length)) numMatches += 1;
  return numMatches;
}

/** Remembers where each target was found last, so that looking for all items costs one pass per distinct target. */
class NextMatches {
  readonly #tokenIds: readonly number[];
  readonly #found = new Map<string, number>();

  constructor(tokenIds: readonly number[]) {
    this.#tokenIds = tokenIds;
  }

  /** First occurrence at or after `from`, which must not decrease between calls. */
  find(target: readonly number[], from: number): number | null {
    if (target.length === 0) return null;
    const key = target.join();
    let start = this.#found.get(key) ?? 0;
    if (start < from) start = from;
    const last = this.#tokenIds.length - target.length;
    while (start <= last && !this.#matchesAt(target, start)) {
      const next = this.#tokenIds.indexOf(target[0], start + 1);
      start = next === -1 ? this.#tokenIds.length : next;
    }
    this.#found.set(key, start);
    return start <= last ? start : null;
  }

  #matchesAt(target: readonly number[], start: number): boolean {
    for (let index = 0; index < target.length; index += 1) {
      if (this.#tokenIds[start + index] !== target[index]) return false;
    }
    return true;
  }
}

/** Prompts may be longer than a call can take arguments, so no spread. */
function appendRange(to: number[], from: readonly number[], start: number, end: number): void {
  for (let index = start; index < end; index += 1) to.push(from[index]);
}
