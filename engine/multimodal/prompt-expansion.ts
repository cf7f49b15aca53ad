/** Inserts processed items into a prompt, whichever way it spells their placeholders. */
import { applyPromptUpdates, applyPromptUpdatesToText } from "./apply-prompt-updates.ts";
import type { ItemUpdates, JoinTokens, UpdatedPrompt } from "./apply-prompt-updates.ts";
import { findPlaceholders } from "./find-placeholders.ts";
import type { PromptText } from "./prompt-text.ts";

export interface ExpansionOptions {
  readonly promptText: PromptText;
  /** Whether the prompt may already contain the features of the items. */
  readonly mayBeExpanded: boolean;
  /** Whether to search the prompt's text for places that its tokens lack. */
  readonly mayMatchText: boolean;
  readonly joinTokens?: JoinTokens | undefined;
}

/**
 * Works on tokens first, which stay unchanged between the items. If an item has no place among them, all updates are
 * done again on the text, because a target's tokens can depend on its neighbours. Items without a place have no
 * placeholder in the result.
 */
export async function expandPrompt(
  tokenIds: readonly number[],
  items: ItemUpdates,
  { promptText, mayBeExpanded, mayMatchText, joinTokens }: ExpansionOptions,
): Promise<UpdatedPrompt> {
  if (mayBeExpanded) {
    const placeholders = findPlaceholders(tokenIds, [items])[0]!;
    if (isComplete({ tokenIds, placeholders })) return { tokenIds, placeholders };
  }
  const updated = await applyPromptUpdates(tokenIds, items, promptText, joinTokens);
  if (isComplete(updated) || !mayMatchText) return updated;
  return applyPromptUpdatesToText(tokenIds, items, promptText, joinTokens);
}

function isComplete({ placeholders }: UpdatedPrompt): boolean {
  return placeholders.every((placeholder) => placeholder !== null);
}
