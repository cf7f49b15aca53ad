/** Numbers in front of the images of a prompt, for models that count them. */
import type { ResolvedPromptUpdate } from "./resolved-prompt-update.ts";

/**
 * The updates of an item with the tokens of its number in front of their contents. Items are shared by prompts, so they
 * have none themselves.
 *
 * @param number See `MultiModalProcessor.numberTokens`.
 */
export function numberedUpdates(
  updates: readonly ResolvedPromptUpdate[],
  number: readonly number[],
): readonly ResolvedPromptUpdate[] {
  if (number.length === 0) return updates;
  return updates.map(({ content: { full, isEmbed }, ...update }) => ({
    ...update,
    content: {
      full: [...number, ...full],
      isEmbed: [...number.map(() => false), ...(isEmbed ?? full.map(() => true))],
    },
  }));
}
