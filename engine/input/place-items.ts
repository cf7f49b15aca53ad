/** Replaces the placeholders of a prompt by the tokens of its images and of its videos' items. */
import { EngineError, invariant } from "../contract/errors.ts";
import type { Modality } from "../contract/request-output.ts";
import type { ImageFeature } from "../core/engine-request.ts";
import { expandPrompt } from "../multimodal/apply-prompt-updates.ts";
import type { UpdatedPrompt } from "../multimodal/apply-prompt-updates.ts";
import type { PlacedImage, ProcessorOptions } from "../multimodal/multimodal-processor.ts";
import { namingMember } from "../multimodal/named-errors.ts";
import { numEmbeddingsIn } from "../multimodal/placeholder.ts";
import type { ProcessedItem } from "../multimodal/processed-item.ts";
import type { PromptText } from "../multimodal/prompt-text.ts";
import { targetAt } from "../multimodal/prompt-update.ts";
import type { PromptUpdate } from "../multimodal/prompt-update.ts";
import type { ItemUpdates, PromptTarget, ResolvedPromptUpdate } from "../multimodal/resolved-prompt-update.ts";
import { countOccurrences } from "../multimodal/sequence-search.ts";
import type { ImageInputs } from "./image-inputs.ts";
import type { LoadedItem } from "./item-loader.ts";
import type { ItemPart } from "./prompt-parts.ts";
import { tooManyEmbeddings } from "./request-options.ts";
import {
  checkContentTokens,
  countOutside,
  mayHoldFeatures,
  unplacedImages,
  wrongPlaceholders,
} from "./token-checks.ts";
import type { TokenizedPrompt } from "./tokenize-prompt.ts";

/** An image, or an item of a video, at its place in the prompt. */
export interface PromptItem extends ImageFeature {
  /** What the request sent, also for a model that sees the frames of videos as images. */
  readonly modality: Modality;
}

/** With what the model's positions depend on. */
export type PlacedFeature = PromptItem & Pick<PlacedImage, "videoItem">;

/** The parts of a prompt and, at the same indices, what was loaded for them. */
export interface LoadedParts {
  /** Parts that the prompt had before these, and that were removed from it. */
  readonly omitted: readonly ItemPart[];
  readonly parts: readonly ItemPart[];
  readonly items: readonly LoadedItem[];
}

export interface PlacingSettings extends Omit<UpdateSettings, "processor"> {
  readonly imageInputs: ImageInputs;
  readonly promptText: PromptText;
}

/**
 * Returns the tokens of the whole prompt, and its items in the order of their positions.
 *
 * @throws EngineError `invalid_argument` for a prompt without a place for each item, and for an item with more
 *   embeddings than the engine has room for; errors of `placedUpdates` and of the tokenizer.
 */
export async function placeItems(
  prompt: Pick<TokenizedPrompt, "tokenIds" | "isExact">,
  loaded: LoadedParts,
  settings: PlacingSettings,
): Promise<{ readonly tokenIds: readonly number[]; readonly images: readonly PlacedFeature[] }> {
  const expanded = await expand(prompt, loaded, settings);
  const images = toFeatures(loaded, expanded);
  checkEmbeddings(images, settings);
  return { tokenIds: expanded.tokenIds, images };
}

async function expand(
  { tokenIds, isExact }: Pick<TokenizedPrompt, "tokenIds" | "isExact">,
  { omitted, parts, items }: LoadedParts,
  { imageInputs, promptText, ...settings }: PlacingSettings,
): Promise<UpdatedPrompt> {
  const { processor } = imageInputs;
  let numImages = omitted.filter((part) => !isOfVideo(part)).length;
  const inPrompt = items.map(({ item: { promptUpdates } }, index) => ({
    promptUpdates,
    index: omitted.length + index,
    imageIndex: isOfVideo(parts[index]) ? null : numImages++,
  }));
  const updates = placedUpdates(inPrompt, { ...settings, processor });
  const expanded = await expandPrompt(tokenIds, updates, {
    promptText,
    mayBeExpanded: !isExact && mayHoldFeatures(tokenIds, imageInputs, items.length, items.length),
    // A text that spells a placeholder means no image; without placeholders, there is nothing to confuse.
    mayMatchText: !isExact || processor.imagePlaceholder === null,
    joinTokens: processor.joinTokens,
  });
  const hasTextTarget = updates.some((alternatives) => alternatives.some(({ target }) => target.kind === "text"));
  checkPlaces(tokenIds, expanded, items.length, imageInputs, isExact && hasTextTarget);
  return expanded;
}

/**
 * @param tokenIds Before they were expanded.
 * @param ignoresText Whether a target may be in the text, which was not searched.
 */
function checkPlaces(
  tokenIds: readonly number[],
  expanded: UpdatedPrompt,
  numItems: number,
  { processor: { imagePlaceholder, imagePlaceholderTokenIds } }: ImageInputs,
  ignoresText: boolean,
): void {
  const numPlaced = expanded.placeholders.filter((placeholder) => placeholder !== null).length;
  // A remaining placeholder would be treated as a feature without an image.
  const numLeft = imagePlaceholder === null ? 0 : countOutside(expanded, imagePlaceholderTokenIds);
  if (numPlaced === numItems && numLeft === 0) return;
  if (imagePlaceholder === null) {
    throw new EngineError("invalid_argument", `The prompt has places for ${numPlaced} of its ${numItems} images.`, {
      parameter: "prompt",
    });
  }
  const numPlaceholders = countOccurrences(tokenIds, imagePlaceholderTokenIds);
  if (numPlaceholders === numItems) throw unplacedImages(numLeft, imagePlaceholder, ignoresText);
  throw wrongPlaceholders(numPlaceholders, imagePlaceholder, numItems);
}

/** In the order of their positions. */
function toFeatures({ parts, items }: LoadedParts, { placeholders }: UpdatedPrompt): PlacedFeature[] {
  const features = items.map(({ mmHash, item: { tensors } }, index): PlacedFeature => {
    const placeholder = placeholders[index];
    invariant(placeholder, "images without a place are rejected");
    const part = parts[index];
    const hasTimes = part?.type === "frames" && part.isOfVideo;
    const modality = isOfVideo(part) ? "video" : "image";
    return { tensors, mmHash, placeholder, modality, ...(hasTimes && { videoItem: part.item }) };
  });
  return features.sort((left, right) => left.placeholder.offset - right.placeholder.offset);
}

function isOfVideo(part: ItemPart | undefined): boolean {
  return part?.type === "frames" && part.origin === "video";
}

/** Checks all images; new ones were counted before they were processed. */
function checkEmbeddings(
  images: readonly ImageFeature[],
  { imageInputs: { info, processor }, options }: PlacingSettings,
): void {
  for (const { placeholder } of images) {
    const numEmbeddings = numEmbeddingsIn(placeholder);
    if (numEmbeddings > info.maxTokensPerItem) {
      throw tooManyEmbeddings(numEmbeddings, info, options === processor.options);
    }
  }
}

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
 * The prompt updates of items with what depends on their prompt: prompts share items, so these do not know it.
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
