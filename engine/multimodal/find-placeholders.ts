/** Finds the features of items in a prompt that someone else has expanded already. */
import type { ItemUpdates } from "./apply-prompt-updates.ts";
import type { PlaceholderRange } from "./placeholder.ts";
import type { PromptContent } from "./resolved-prompt-update.ts";
import { findSequence } from "./sequence-search.ts";

/**
 * Ranges by modality and item, from left to right: of the items that each modality looks for next, the leftmost takes
 * its place (the first modality where several begin there, then the first alternative), and the search goes on behind
 * it. Items of a modality therefore stand in their order, and once one is not found neither are those after it: null.
 * Contents without tokens are found nowhere.
 *
 * As vLLM's search for placeholders, in time linear in the prompt for each modality and alternative.
 */
export function findPlaceholders(
  tokenIds: readonly number[],
  modalities: readonly ItemUpdates[],
): readonly (readonly (PlaceholderRange | null)[])[] {
  const found = modalities.map((items) => items.map((): PlaceholderRange | null => null));
  const candidates = modalities.map((items) => new ItemCandidates(tokenIds, items));
  let position = 0;
  for (;;) {
    let first: Candidate | null = null;
    let modality = -1;
    for (const [index, candidate] of candidates.entries()) {
      const next = candidate.next(position);
      if (next !== null && (first === null || next.offset < first.offset)) [first, modality] = [next, index];
    }
    if (first === null) return found;
    const { offset, item, content } = first;
    found[modality][item] = { offset, length: content.full.length, isEmbed: content.isEmbed };
    candidates[modality].advance();
    position = offset + content.full.length;
  }
}

interface Candidate {
  readonly item: number;
  readonly content: PromptContent;
  readonly offset: number;
}

/** Where the next item of one modality could stand; mutable. */
class ItemCandidates {
  readonly #tokenIds: readonly number[];
  readonly #items: ItemUpdates;
  #item = 0;
  /** By alternative of the item: where it stands, at the least; null when nowhere. Empty when not looked for yet. */
  #offsets: (number | null)[] = [];

  constructor(tokenIds: readonly number[], items: ItemUpdates) {
    this.#tokenIds = tokenIds;
    this.#items = items;
  }

  advance(): void {
    this.#item += 1;
    this.#offsets = [];
  }

  next(position: number): Candidate | null {
    const updates = this.#items[this.#item] ?? [];
    let first: Candidate | null = null;
    for (const [alternative, { content }] of updates.entries()) {
      let offset = this.#offsets[alternative];
      // Looked for again only where another modality took the place.
      if (offset === undefined || (offset !== null && offset < position)) {
        offset = findSequence(this.#tokenIds, content.full, position);
        this.#offsets[alternative] = offset;
      }
      if (offset !== null && (first === null || offset < first.offset)) first = { item: this.#item, content, offset };
    }
    return first;
  }
}
