/** Puts processed items into a prompt, however the prompt spells their places. */
import { applyPromptUpdates, applyPromptUpdatesToText } from "./apply-prompt-updates.ts";
import type { ItemUpdates, UpdatedPrompt } from "./apply-prompt-updates.ts";
import { findPlaceholders } from "./find-placeholders.ts";
import type { PromptText } from "./prompt-text.ts";

export interface ExpansionOptions {
  readonly promptText: PromptText;
  /** Whether the features of the items may be there already. */
  readonly mayBeExpanded: boolean;
  /** Whether places may be looked for in the prompt's text where its tokens have none. */
  readonly mayMatchText: boolean;
}

/**
 * Tokens first: they stay as they are between the items. Only where some item has no place among them all updates are
 * done anew on the text, as a target may be spelled by other tokens beside its neighbours. Items without a place have
 * no placeholder in the result.
 */
export async function expandPrompt(
  tokenIds: readonly number[],
  items: ItemUpdates,
  { promptText, mayBeExpanded, mayMatchText }: ExpansionOptions,
): Promise<UpdatedPrompt> {
  if (mayBeExpanded) {
    const [placeholders] = findPlaceholders(tokenIds, [items]);
    if (isComplete({ tokenIds, placeholders })) return { tokenIds, placeholders };
  }
  const updated = await applyPromptUpdates(tokenIds, items, promptText);
  if (isComplete(updated) || !mayMatchText) return updated;
  return applyPromptUpdatesToText(tokenIds, items, promptText);
}

function isComplete({ placeholders }: UpdatedPrompt): boolean {
  return placeholders.every((placeholder) => placeholder !== null);
}
