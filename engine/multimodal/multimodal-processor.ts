/** What a vision model says about its inputs: everything that shared code needs to put images into its prompts. */
import type { PictureOwner } from "../images/image-processor.ts";
import type { PictureHeader } from "../images/picture-header.ts";
import type { DummyInputsBuilder } from "./dummy-inputs.ts";
import type { BatchedTensor, FieldConfig } from "./field-config.ts";
import type { CanonicalValue } from "./hasher.ts";
import type { PlaceholderRange } from "./placeholder.ts";
import type { ItemTensor } from "./processed-item.ts";
import type { ImageSize, ProcessingInfo } from "./processing-info.ts";
import type { PromptPositions } from "./prompt-positions.ts";
import type { PromptUpdate } from "./prompt-update.ts";

/** As preprocessor_config.json has them. */
export type ProcessorOptions = Readonly<Record<string, CanonicalValue>>;

/** A picture as it came. */
export interface EncodedImage {
  readonly bytes: Uint8Array;
  /** Names the picture in errors: `prompt.images[2]`. */
  readonly parameter: string;
  /** From `PixelProcessor.inspect`, where that was asked before. */
  readonly header?: PictureHeader;
  /** The request that the picture is processed for; left out, it is processed as one of its own. */
  readonly owner?: PictureOwner;
}

/** Turns pictures into tensors away from the calling thread. */
export interface PixelProcessor {
  /**
   * Of the `pixel_values` that options make of a square picture, and the option that says so; null where it is the
   * picture's own, and for models with a program of their own. Throws EngineError for options that it cannot follow.
   */
  outputSize(options: ProcessorOptions): OutputSize | null;
  /** Reads the picture's header, and holds it to the limits of one picture. Throws EngineError of pictures, or `aborted`. */
  inspect(image: EncodedImage, signal: AbortSignal): Promise<PictureHeader>;
  /**
   * The tensors of one picture, without a dimension of a batch, and its size as it came. Throws EngineError of
   * pictures, `invalid_checkpoint` or `unsupported_model` for options it cannot follow, or `aborted`.
   */
  process(image: EncodedImage, options: ProcessorOptions, signal: AbortSignal): Promise<ProcessedPixels>;
}

export interface OutputSize extends ImageSize {
  readonly option: "size" | "crop_size";
}

export interface ProcessedPixels {
  readonly tensors: ReadonlyMap<string, ItemTensor>;
  readonly imageSize: ImageSize;
}

/** What came out of processing some images, in their order. */
export interface ProcessedBatch {
  /** By the vision encoder's input names, all images together. */
  readonly fields: ReadonlyMap<string, BatchedTensor>;
  readonly imageSizes: readonly ImageSize[];
}

/** What a prompt update may depend on: one image of a request. */
export type UpdateItem =
  | { readonly kind: "image"; readonly imageSize: ImageSize; readonly tensors: ReadonlyMap<string, ItemTensor> }
  /** Its embeddings came with the request. */
  | { readonly kind: "embeddings"; readonly numEmbeddings: number };

export interface MultiModalProcessor {
  /** The text that stands for one image in a prompt; null where images have no place of their own in it. */
  readonly imagePlaceholder: string | null;
  /** The tokens of `imagePlaceholder` in a prompt; empty where that is null. */
  readonly imagePlaceholderTokenIds: readonly number[];
  /** The checkpoint's. Together with what a request changes of them they are part of every item's hash. */
  readonly options: ProcessorOptions;
  /** Those of the options that a request may set. */
  readonly requestOptions: ReadonlySet<string>;
  /** By option: older names for the same, whose values in the checkpoint no longer count where a request sets it. */
  readonly replacedOptions?: Readonly<Record<string, readonly string[]>>;
  /**
   * Throws EngineError `invalid_checkpoint` or `unsupported_model` for options that it cannot follow, whatever the
   * picture. Its `parameter` is the path of the option (`image_std[0]`), with which the message begins.
   */
  checkOptions(options: ProcessorOptions): void;
  /**
   * As `ProcessingInfo.numImageTokens`, under other options than the checkpoint's. Throws EngineError `invalid_image` or
   * `image_too_large` for a picture that cannot be taken under them.
   */
  numImageTokens(size: ImageSize, options: ProcessorOptions): number;
  /** An item must not depend on the others of its batch. Throws as `PixelProcessor.process` does. */
  processImages(
    images: readonly EncodedImage[],
    options: ProcessorOptions,
    signal: AbortSignal,
  ): Promise<ProcessedBatch>;
  /** How `ProcessedBatch.fields` belong to the images; fields without one are dropped. */
  fieldConfigs(batch: ProcessedBatch): Readonly<Record<string, FieldConfig>>;
  /**
   * Rules for all items; where there are several, an item takes the first whose target is in the prompt. Throws
   * EngineError `invalid_argument` for embeddings of which it cannot know where they belong.
   */
  promptUpdates(items: readonly UpdateItem[], options: ProcessorOptions): readonly PromptUpdate[];
  /**
   * What the model does to any prompt, whatever images it has (a token at the end, say). Does not change its argument;
   * applied twice it does nothing more.
   */
  applyTokensOnly?(tokenIds: readonly number[]): readonly number[];
  /**
   * Positions of a prompt's tokens, of models that give them more than the places they stand at.
   *
   * @param images In the order of their placeholders; prompts without any are not asked for. Of an image whose
   *   embeddings are cached only its smallest tensors, of 256 bytes at most, are there.
   */
  promptPositions?(numTokens: number, images: readonly PlacedImage[]): PromptPositions;
}

/** An image of an expanded prompt. */
export interface PlacedImage {
  readonly placeholder: PlaceholderRange;
  readonly tensors: ReadonlyMap<string, ItemTensor>;
}

/** What an architecture registers to take images. */
export interface MultiModalInputs<Context> {
  createProcessingInfo(context: Context): ProcessingInfo;
  createDummyInputs(info: ProcessingInfo, context: Context): DummyInputsBuilder;
  createProcessor(info: ProcessingInfo, context: Context): MultiModalProcessor;
  /**
   * Module of a `PixelProgram`, for checkpoints whose image processor is none of the usual ones, or that have none:
   * `PixelProcessor.process` runs it. Left out, preprocessor_config.json is followed to `pixel_values`.
   */
  readonly pixelProgram?: URL;
}
