/** Decides where in a prompt each item's update takes effect. Works on numbers, for tokens and text alike. */
import { SequenceSearch } from "./sequence-search.ts";

/** A target in the elements of the prompt. */
export type ElementTarget =
  /** Matched exactly; empty matches nothing. */
  | { readonly kind: "sequence"; readonly elements: readonly number[] }
  | { readonly kind: "prefix"; readonly elements: readonly number[] }
  | { readonly kind: "start" }
  | { readonly kind: "end" }
  /** Matches at every position. */
  | { readonly kind: "anywhere" };

export interface PlaceableUpdate {
  readonly mode: "replacement" | "insertion";
  readonly target: ElementTarget;
}

/** The result keeps the prompt up to `keepUntil`, then has the item's content, then the prompt from `resumeAt` on. */
export interface Placement {
  readonly item: number;
  /** Index of the chosen update among the item's alternatives. */
  readonly alternative: number;
  readonly keepUntil: number;
  readonly resumeAt: number;
}

/**
 * Places one update per item. `items` contains each item's alternatives. If several items want the same place, the one
 * with the shortest target gets it, then the first in order. Results are in the order of the prompt; items that fit
 * nowhere are missing.
 *
 * The behaviour is vLLM's: an item takes the first of its alternatives that matches; replacements that share a target
 * take its occurrences in order and leave the rest; insertions that share a target all go after its first occurrence,
 * in order; inserted content is never searched. It differs where vLLM's rounds are wrong: the leftmost place always
 * comes first, so that an insertion at the end takes nothing from waiting items, an insertion at the start is always at
 * the start, overlapping targets of insertions repeat no token, and replacements mix with insertions in any order.
 *
 * Takes time linear in the prompt for each distinct target, plus items times distinct targets.
 */
export function placeUpdates(
  prompt: readonly number[],
  items: readonly (readonly PlaceableUpdate[])[],
): readonly Placement[] {
  const matcher = new Matcher(prompt);
  const placements: Placement[] = [];
  let queues = queuesOf(items);
  while (queues.length > 0) {
    let first: ItemQueue | null = null;
    let hasEmpty = false;
    for (const queue of queues) {
      queue.next = matcher.revalidate(queue.alternatives, queue.next);
      if (queue.next === null) hasEmpty = true;
      else if (first === null || first.next === null || comesBefore(queue, queue.next, first, first.next))
        first = queue;
    }
    if (first !== null && first.next !== null) {
      const { alternative, keepUntil, resumeAt } = first.next;
      placements.push({ item: first.items[first.numPlaced]!, alternative, keepUntil, resumeAt });
      matcher.take(first.next);
      first.numPlaced += 1;
      hasEmpty ||= first.numPlaced === first.items.length;
    }
    // A target that is no longer found cannot reappear.
    if (hasEmpty) queues = queues.filter(({ items, numPlaced, next }) => next !== null && numPlaced < items.length);
  }
  return placements;
}

/** Items with equal updates. They are placed in order, so only the first waiting one has to be checked. */
interface ItemQueue {
  readonly alternatives: readonly PlaceableUpdate[];
  readonly items: number[];
  numPlaced: number;
  /** Where the first waiting item would go; null if nowhere. */
  next: Match | null;
}

function queuesOf(items: readonly (readonly PlaceableUpdate[])[]): ItemQueue[] {
  const queues = new Map<string, ItemQueue>();
  for (const [item, alternatives] of items.entries()) {
    const key = alternatives.map(keyOf).join("|");
    const queue = queues.get(key);
    if (queue === undefined) queues.set(key, { alternatives, items: [item], numPlaced: 0, next: notLookedFor });
    else queue.items.push(item);
  }
  return [...queues.values()];
}

function keyOf({ mode, target }: PlaceableUpdate): string {
  return `${mode} ${target.kind} ${"elements" in target ? target.elements.join() : ""}`;
}

interface Match extends Omit<Placement, "item"> {
  /** First element of the target; equals `resumeAt` for targets without length. */
  readonly start: number;
}

/** Before the prompt, and therefore invalid. */
const notLookedFor: Match = { alternative: 0, start: -1, keepUntil: -1, resumeAt: -1 };

/**
 * At one place, the shorter target comes first, so that content between two elements comes before content that replaces
 * the second.
 */
function comesBefore(queue: ItemQueue, match: Match, other: ItemQueue, otherMatch: Match): boolean {
  if (match.keepUntil !== otherMatch.keepUntil) return match.keepUntil < otherMatch.keepUntil;
  if (match.resumeAt !== otherMatch.resumeAt) return match.resumeAt < otherMatch.resumeAt;
  return queue.items[queue.numPlaced]! < other.items[other.numPlaced]!;
}

/** Finds targets in the rest of the prompt. Mutable. */
class Matcher {
  readonly #prompt: readonly number[];
  /** By mode, because each searches from its own position, which only moves forward. */
  readonly #search: Readonly<Record<PlaceableUpdate["mode"], SequenceSearch>>;
  /** Everything before it is behind the content placed last. */
  #kept = 0;
  /** End of the target replaced last. Its elements are consumed, while those of an insertion's target remain. */
  #consumed = 0;

  constructor(prompt: readonly number[]) {
    this.#prompt = prompt;
    this.#search = { replacement: new SequenceSearch(prompt), insertion: new SequenceSearch(prompt) };
  }

  take({ keepUntil, resumeAt }: Match): void {
    this.#kept = resumeAt;
    if (keepUntil < resumeAt) this.#consumed = resumeAt;
  }

  /** Returns `match` if it is still valid, otherwise the next match of these alternatives. */
  revalidate(alternatives: readonly PlaceableUpdate[], match: Match | null): Match | null {
    if (match === null || (match.start >= this.#consumed && match.keepUntil >= this.#kept)) return match;
    for (const [alternative, { mode, target }] of alternatives.entries()) {
      const range = this.#find(mode, target);
      if (range === null) continue;
      const [start, resumeAt] = range;
      return { alternative, start, keepUntil: mode === "replacement" ? start : resumeAt, resumeAt };
    }
    return null;
  }

  #find(mode: PlaceableUpdate["mode"], target: ElementTarget): readonly [start: number, end: number] | null {
    switch (target.kind) {
      case "sequence": {
        const { length } = target.elements;
        const from = mode === "replacement" ? this.#kept : Math.max(this.#consumed, this.#kept - length);
        const start = this.#search[mode].find(target.elements, from);
        return start === null ? null : [start, start + length];
      }
      case "prefix": {
        const { elements } = target;
        const isPrefix = elements.every((element, index) => this.#prompt[index] === element);
        return isPrefix ? this.#at(elements.length) : null;
      }
      case "start":
        return this.#at(0);
      case "end":
        return this.#at(this.#prompt.length);
      case "anywhere":
        return this.#at(this.#kept);
      default:
        return target satisfies never;
    }
  }

  #at(position: number): readonly [number, number] | null {
    return position >= this.#kept ? [position, position] : null;
  }
}
