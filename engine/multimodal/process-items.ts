/** Turns pictures into cacheable items: their tensors and their effect on the prompt. */
import { aboutParameter, EngineError } from "../contract/errors.ts";
import type { ImageGrid } from "../contract/generation-request.ts";
import { shown } from "../excerpt.ts";
import { gridField, gridTensor } from "./embeddings-grid.ts";
import { splitFields } from "./field-config.ts";
import type {
  EncodedImage,
  MultiModalProcessor,
  ProcessedBatch,
  ProcessorOptions,
  UpdateItem,
} from "./multimodal-processor.ts";
import { namingMember } from "./named-errors.ts";
import { numEmbeddingsIn } from "./placeholder.ts";
import { embeddingsField } from "./processed-item.ts";
import type { ItemTensor, ProcessedItem } from "./processed-item.ts";
import type { PromptText } from "./prompt-text.ts";
import { resolvePromptUpdate } from "./prompt-update.ts";
import type { PromptUpdate } from "./prompt-update.ts";
import type { ItemPromptUpdate } from "./resolved-prompt-update.ts";

export interface ProcessItemsOptions {
  readonly options: ProcessorOptions;
  readonly promptText: PromptText;
  readonly signal: AbortSignal;
}

/** In the order of the images, processed as one batch. Throws like `MultiModalProcessor.processImages`. */
export async function processImages(
  processor: MultiModalProcessor,
  images: readonly EncodedImage[],
  { options, promptText, signal }: ProcessItemsOptions,
): Promise<readonly ProcessedItem[]> {
  const batch = await processor.processImages(images, options, signal);
  checkBatch(batch);
  const configs = processor.fieldConfigs(batch);
  const tensorsOfItems = namingMember("fieldConfigs", () => splitFields(batch.fields, configs));
  const { imageSizes } = batch;
  if (tensorsOfItems.length !== images.length || imageSizes.length !== images.length) {
    throw new EngineError(
      "internal",
      `The processor returned ${tensorsOfItems.length} items and ${imageSizes.length} sizes for ${images.length} images.`,
    );
  }
  const items = tensorsOfItems.map(
    (tensors, index) =>
      ({
        kind: "image",
        imageSize: imageSizes[index]!,
        tensors,
        isOfVideo: images[index]!.isOfVideo === true,
      }) as const,
  );
  const resolved = await resolveItems(processor, items, tensorsOfItems, { options, promptText });
  for (const [index, { imageSize }] of items.entries()) {
    const numEmbeddings = processor.numImageTokens(imageSize, options);
    const numPlaces = numPlacesOtherThan(numEmbeddings, resolved[index]!);
    if (numPlaces === null) continue;
    throw new EngineError(
      "internal",
      `The model's promptUpdates have places for ${numPlaces} embeddings of an image of ${imageSize.width} x ` +
        `${imageSize.height} pixels; its numImageTokens counts ${numEmbeddings}.`,
    );
  }
  return resolved;
}

/** Models in JavaScript are not checked by a compiler. */
function checkBatch(batch: Partial<ProcessedBatch> | undefined): void {
  const { fields, imageSizes } = batch ?? {};
  if (fields instanceof Map && Array.isArray(imageSizes)) return;
  throw new EngineError(
    "internal",
    `The model's processImages returned ${shown(batch)}; expected an object with a Map of fields and a list of imageSizes.`,
  );
}

export interface GivenEmbeddings {
  /** [numEmbeddings, hiddenSize]. */
  readonly embeddings: ItemTensor<"float32">;
  readonly grid: ImageGrid | null;
}

/** Items for embeddings in the request. */
export async function toEmbeddingItems(
  processor: MultiModalProcessor,
  given: readonly GivenEmbeddings[],
  settings: Omit<ProcessItemsOptions, "signal">,
): Promise<readonly ProcessedItem[]> {
  const items = given.map(
    ({ embeddings, grid }) => ({ kind: "embeddings", numEmbeddings: embeddings.shape[0] ?? 0, grid }) as const,
  );
  const tensors = given.map(
    ({ embeddings, grid }) =>
      new Map<string, ItemTensor>([
        [embeddingsField, embeddings],
        ...(grid === null ? [] : [[gridField, gridTensor(grid)] as const]),
      ]),
  );
  const resolved = await resolveItems(processor, items, tensors, settings);
  for (const [index, { numEmbeddings }] of items.entries()) {
    const numPlaces = numPlacesOtherThan(numEmbeddings, resolved[index]!);
    if (numPlaces === null) continue;
    throw new EngineError(
      "invalid_image",
      `The image embeddings have ${numEmbeddings} rows; the model has ${numPlaces} places for them in the prompt.`,
      { parameter: `prompt.images[${index}]` },
    );
  }
  return resolved;
}

/** Null if every update of the item has a place for each of its embeddings. */
function numPlacesOtherThan(numEmbeddings: number, { promptUpdates }: ProcessedItem): number | null {
  const counts = promptUpdates.map(({ content: { full, isEmbed } }) =>
    numEmbeddingsIn({ offset: 0, length: full.length, isEmbed }),
  );
  return counts.find((count) => count !== numEmbeddings) ?? null;
}

async function resolveItems(
  processor: MultiModalProcessor,
  items: readonly UpdateItem[],
  tensorsOfItems: readonly ReadonlyMap<string, ItemTensor>[],
  { options, promptText }: Omit<ProcessItemsOptions, "signal">,
): Promise<readonly ProcessedItem[]> {
  const updates = processor.promptUpdates(items, options);
  if (!Array.isArray(updates) || updates.length === 0) {
    throw new EngineError(
      "internal",
      `The model's promptUpdates returned ${shown(updates)}; expected a list of at least one rule.`,
    );
  }
  const resolve = async (update: PromptUpdate, index: number): Promise<ItemPromptUpdate> => {
    try {
      return await namingMember("promptUpdates", () => resolvePromptUpdate(update, index, promptText));
    } catch (error) {
      // Embeddings are all items of their request, whose parameters have the same indices.
      const isUnnamed = error instanceof EngineError && error.code === "invalid_argument" && error.parameter === null;
      throw isUnnamed && items[index]!.kind === "embeddings" ? aboutParameter(error, `prompt.images[${index}]`) : error;
    }
  };
  return Promise.all(
    tensorsOfItems.map(async (tensors, index) => ({
      tensors,
      promptUpdates: await Promise.all(updates.map((update) => resolve(update, index))),
    })),
  );
}
