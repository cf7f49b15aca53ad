/** Limits on the items of a prompt that no cache has, checked before they are decoded. */
import type { ImageLimits } from "../contract/config.ts";
import { defaultDecodeLimits } from "../contract/default-limits.ts";
import { aboutParameter, EngineError } from "../contract/errors.ts";
import { shown } from "../excerpt.ts";
import { decodeCostOf } from "../images/decode-cost.ts";
import type { PictureHeader } from "../images/picture-header.ts";
import type { MultiModalProcessor, ProcessorOptions } from "../multimodal/multimodal-processor.ts";
import type { ProcessingInfo } from "../multimodal/processing-info.ts";
import { tooManyEmbeddings } from "./request-options.ts";

export interface NewItem {
  readonly header: PictureHeader;
  /** Of the image processor. */
  readonly options: ProcessorOptions;
  /** Names it in errors. */
  readonly parameter: string;
}

/** Throws EngineError `image_too_large`. */
export function checkWork(
  items: readonly NewItem[],
  { maxRequestDecodeCost }: Pick<ImageLimits, "maxRequestDecodeCost">,
): void {
  const maxCost = maxRequestDecodeCost ?? defaultDecodeLimits.maxRequestDecodeCost;
  const cost = items.reduce((sum, { header }) => sum + decodeCostOf(header), 0);
  if (cost <= maxCost) return;
  throw new EngineError(
    "image_too_large",
    `Decoding the ${items.length} new images of the prompt costs as much as ${cost} pixels of plain RGB; the limit is ${maxCost}. Send fewer or smaller images.`,
    { parameter: "prompt.images", setting: "maxRequestDecodeCost" },
  );
}

/**
 * Processing items is useless if the prompt has no room for them. Throws EngineError `invalid_argument`,
 * `prompt_too_long`, and those of `MultiModalProcessor.numImageTokens`.
 *
 * @param maxNumEmbeddings For which the prompt has room.
 */
export function checkEmbeddings(
  items: readonly NewItem[],
  { processor, info }: { readonly processor: MultiModalProcessor; readonly info: ProcessingInfo },
  maxNumEmbeddings: number,
): void {
  let numEmbeddings = 0;
  for (const { header, options, parameter } of items) {
    const { width, height } = header.shownSize;
    const count = about(parameter, () => processor.numImageTokens(header.shownSize, options));
    if (!Number.isSafeInteger(count) || count < 0) {
      throw new EngineError(
        "internal",
        `The model's numImageTokens returned ${shown(count)} for an image of ${width} x ${height} pixels; expected the number of its embeddings.`,
      );
    }
    if (count > info.maxTokensPerItem) throw tooManyEmbeddings(count, info, options === processor.options);
    numEmbeddings += count;
  }
  if (numEmbeddings <= maxNumEmbeddings) return;
  throw new EngineError(
    "prompt_too_long",
    `The new images of the prompt have ${numEmbeddings} embeddings; next to its text there is room for ${maxNumEmbeddings}. Send fewer or smaller images.`,
    { parameter: "prompt" },
  );
}

function about<Result>(parameter: string, run: () => Result): Result {
  try {
    return run();
  } catch (error) {
    throw error instanceof EngineError ? aboutParameter(error, parameter) : error;
  }
}
