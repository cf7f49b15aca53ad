/** The prompt updates of items with what depends on their prompt, and not on the items themselves. */
import type { ProcessorOptions } from "../multimodal/multimodal-processor.ts";
import { numberedUpdates } from "../multimodal/numbered-updates.ts";
import type { ProcessedItem } from "../multimodal/processed-item.ts";
import type { ItemUpdates } from "../multimodal/resolved-prompt-update.ts";
import type { ImageInputs } from "./image-inputs.ts";
import { checkContentTokens } from "./token-checks.ts";

export interface UpdateSettings extends Pick<ImageInputs, "processor"> {
  /** Of the image processor. */
  readonly options: ProcessorOptions;
  readonly vocabSize: number;
}

/** An item at its place in a prompt. */
export interface ItemInPrompt extends Pick<ProcessedItem, "promptUpdates"> {
  /** Among the images of the prompt; null for an item of a video. */
  readonly imageIndex: number | null;
}

/** Throws EngineError `internal` for tokens outside the vocabulary. */
export function placedUpdates(items: readonly ItemInPrompt[], settings: UpdateSettings): ItemUpdates {
  const { processor, options } = settings;
  return items.map(({ promptUpdates, imageIndex }) => {
    for (const { content } of promptUpdates) checkContentTokens(content.full, "promptUpdates", settings);
    const number = imageIndex === null ? [] : (processor.numberTokens?.(imageIndex, options) ?? []);
    checkContentTokens(number, "numberTokens", settings);
    return numberedUpdates(promptUpdates, number);
  });
}
