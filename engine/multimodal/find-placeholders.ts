/** Finds the features of items in a prompt that the caller has already expanded. */
import type { PlaceholderRange } from "./placeholder.ts";
import type { ItemUpdates, PromptContent } from "./resolved-prompt-update.ts";
import { findSequence } from "./sequence-search.ts";

/**
 * Returns ranges by modality and item, from left to right. Of the next items of each modality, the leftmost takes its
 * place (on a tie the first modality, then the first alternative), and the search continues behind it. Items of a
 * modality are therefore in order, and after an item that is not found, the others are null too. Contents without
 * tokens are never found.
 *
 * Like vLLM's search for placeholders, in time linear in the prompt for each modality and alternative.
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
    found[modality]![item] = { offset, length: content.full.length, isEmbed: content.isEmbed };
    candidates[modality]!.advance();
    position = offset + content.full.length;
  }
}

interface Candidate {
  readonly item: number;
  readonly content: PromptContent;
  readonly offset: number;
}

/** Possible positions of the next item of one modality. Mutable. */
class ItemCandidates {
  readonly #tokenIds: readonly number[];
  readonly #items: ItemUpdates;
  #item = 0;
  /** By alternative of the item: its earliest position; null if there is none. Empty until searched. */
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
      // Searched again only if another modality took the place.
      if (offset === undefined || (offset !== null && offset < position)) {
        offset = findSequence(this.#tokenIds, content.full, position);
        this.#offsets[alternative] = offset;
      }
      if (offset !== null && (first === null || offset < first.offset)) first = { item: this.#item, content, offset };
    }
    return first;
  }
}
