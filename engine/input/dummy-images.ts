/** Pictures without meaning as the vision encoder receives them, which it encodes before the first request. */
import { EngineError } from "../contract/errors.ts";
import type { ImageFeature } from "../core/engine-request.ts";
import { outlineOf } from "../core/image-outline.ts";
import type { ImageOutline } from "../core/image-outline.ts";
import { dummyPicture } from "../multimodal/dummy-inputs.ts";
import { processImages } from "../multimodal/process-items.ts";
import type { ImageSize, LargestSize } from "../multimodal/processing-info.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { LoadedImageInputs } from "./multimodal-inputs.ts";
import { placedUpdates } from "./place-items.ts";
import { createPromptText } from "./tokenize-prompt.ts";

interface TokenSettings {
  readonly tokenizer: Tokenizer;
  readonly vocabSize: number;
}

/** In pixels; models that need more enlarge the picture. */
const WARM_UP_EDGE = 32;

/**
 * A small picture, so that the first picture of a request is not the first at all. No cache sees it. Null if the limits
 * accept no picture of any tried size.
 *
 * Throws the processor's EngineError, and those of `placedUpdates`.
 */
export async function createWarmUpImage(
  inputs: LoadedImageInputs,
  settings: TokenSettings,
  signal: AbortSignal,
): Promise<ImageFeature | null> {
  const [size] = inputs.dummyInputs.build(1, { width: WARM_UP_EDGE, height: WARM_UP_EDGE }).imageSizes;
  try {
    return await processAccepted(inputs, size!, settings, signal);
  } catch (error) {
    if (isTooLarge(error)) return null;
    throw error;
  }
}

/** Shortens the edges of a picture that the limits of pictures reject. */
const SHRINK_FACTOR = 0.9;

/**
 * The largest picture that the model has features for, and that the settings expect and accept.
 *
 * Throws the processor's EngineError, and those of `placedUpdates`.
 */
export async function createLargestImage(
  inputs: LoadedImageInputs,
  { expected, ...settings }: TokenSettings & { readonly expected: LargestSize | undefined },
  signal: AbortSignal,
): Promise<ImageOutline> {
  const [size] = inputs.dummyInputs.build(1, expected).imageSizes;
  return outlineOf(await processAccepted(inputs, size!, settings, signal));
}

/** The picture of this size, or the largest of those made by shortening it that the limits accept. */
async function processAccepted(
  inputs: LoadedImageInputs,
  largest: ImageSize,
  settings: TokenSettings,
  signal: AbortSignal,
): Promise<ImageFeature> {
  let size = largest;
  for (;;) {
    try {
      return await processDummy(inputs, size, settings, signal);
    } catch (error) {
      const isSmallest = size.width === 1 && size.height === 1;
      if (!isTooLarge(error) || isSmallest) throw error;
      size = { width: shrink(size.width), height: shrink(size.height) };
    }
  }
}

function isTooLarge(error: unknown): boolean {
  return error instanceof EngineError && error.code === "image_too_large";
}

function shrink(edge: number): number {
  return Math.max(1, Math.floor(edge * SHRINK_FACTOR));
}

async function processDummy(
  { processor }: LoadedImageInputs,
  size: ImageSize,
  { tokenizer, vocabSize }: TokenSettings,
  signal: AbortSignal,
): Promise<ImageFeature> {
  const picture = { bytes: dummyPicture(size), parameter: "warm-up" };
  const { options } = processor;
  const [item] = await processImages(processor, [picture], {
    options,
    promptText: createPromptText(tokenizer),
    signal,
  });
  const { promptUpdates, tensors } = item!;
  const [updates] = placedUpdates([{ promptUpdates, index: 0, imageIndex: 0 }], { processor, options, vocabSize });
  const { full, isEmbed } = updates![0]!.content;
  return { tensors, mmHash: "warm-up", placeholder: { offset: 0, length: full.length, isEmbed } };
}
