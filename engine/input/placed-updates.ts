/** The prompt updates of items with what depends on their prompt: prompts share items, so these do not know it. */
import { EngineError } from "../contract/errors.ts";
import type { ProcessorOptions } from "../multimodal/multimodal-processor.ts";
import { namingMember } from "../multimodal/named-errors.ts";
import { numberedUpdates } from "../multimodal/numbered-updates.ts";
import type { ProcessedItem } from "../multimodal/processed-item.ts";
import { targetAt } from "../multimodal/prompt-update.ts";
import type { PromptUpdate } from "../multimodal/prompt-update.ts";
import type { ItemUpdates, PromptTarget, ResolvedPromptUpdate } from "../multimodal/resolved-prompt-update.ts";
import type { ImageInputs } from "./image-inputs.ts";
import { checkContentTokens } from "./token-checks.ts";

export interface UpdateSettings extends Pick<ImageInputs, "processor"> {
  /** Of the image processor. */
  readonly options: ProcessorOptions;
  readonly vocabSize: number;
}

/** An item at its place in a prompt. */
export interface ItemInPrompt extends Pick<ProcessedItem, "promptUpdates"> {
  /** Among all items of the prompt. */
  readonly index: number;
  /** Among the images of the prompt; null for an item of a video. */
  readonly imageIndex: number | null;
}

/**
 * Throws EngineError `internal` for tokens outside the vocabulary, and for a target that the model's rules no longer
 * have.
 */
export function placedUpdates(items: readonly ItemInPrompt[], settings: UpdateSettings): ItemUpdates {
  const { processor, options } = settings;
  let rules: readonly PromptUpdate[] | null = null;
  const targetOf = (ruleIndex: number, index: number): PromptTarget => {
    rules ??= processor.promptUpdates([], options);
    const rule = (rules as typeof rules | undefined)?.[ruleIndex];
    const target = rule === undefined ? null : namingMember("promptUpdates", () => targetAt(rule, index));
    if (target !== null) return target;
    throw new EngineError(
      "internal",
      `The model's promptUpdates has a function as the target of rule ${ruleIndex} for an image, and none without images.`,
    );
  };
  return items.map(({ promptUpdates, index, imageIndex }) => {
    const placed = promptUpdates.map((update, ruleIndex): ResolvedPromptUpdate => {
      checkContentTokens(update.content.full, "promptUpdates", settings);
      return { ...update, target: update.target ?? targetOf(ruleIndex, index) };
    });
    const number = imageIndex === null ? [] : (processor.numberTokens?.(imageIndex, options) ?? []);
    checkContentTokens(number, "numberTokens", settings);
    return numberedUpdates(placed, number);
  });
}
