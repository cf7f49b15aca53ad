/** Prompt updates by text, for prompts whose tokens spell a placeholder in another way than its target does. */
import { applyPromptUpdates } from "./prompt-update.ts";
import type { PlaceholderRange } from "./placeholder.ts";
import type { PromptUpdate, UpdatedPrompt } from "./prompt-update.ts";

/** A tokenizer without the special tokens it would add around a text. */
export interface PromptText {
  /** Special tokens included. */
  decode(tokenIds: readonly number[]): string;
  encode(text: string): Promise<readonly number[]>;
}

/**
 * As `applyPromptUpdates`, but on the text of the prompt and of the targets. The text between two items is encoded by
 * itself, so that no token ever grows into an item's content.
 */
export async function applyPromptUpdatesToText(
  promptTokenIds: readonly number[],
  updates: readonly PromptUpdate[],
  promptText: PromptText,
): Promise<UpdatedPrompt> {
  // The same rounds on code units, in which -1 - item stands for the item's content.
  const updatedText = applyPromptUpdates(
    codeUnits(promptText.decode(promptTokenIds)),
    updates.map((update, item) => ({
      ...update,
      target: codeUnits(promptText.decode(update.target)),
      content: { full: [-1 - item], isEmbed: null },
    })),
  );
  const tokenIds: number[] = [];
  const placeholders: (PlaceholderRange | null)[] = updates.map(() => null);
  let segment = "";
  for (const unit of [...updatedText.tokenIds, null]) {
    if (unit !== null && unit >= 0) {
      segment += String.fromCharCode(unit);
      continue;
    }
    if (segment !== "") for (const tokenId of await promptText.encode(segment)) tokenIds.push(tokenId);
    segment = "";
    if (unit === null) break;
    const { full, isEmbed } = updates[-1 - unit].content;
    placeholders[-1 - unit] = { offset: tokenIds.length, length: full.length, isEmbed };
    for (const tokenId of full) tokenIds.push(tokenId);
  }
  return { tokenIds, placeholders };
}

function codeUnits(text: string): number[] {
  return Array.from({ length: text.length }, (_, index) => text.charCodeAt(index));
}
