/**
 * The contract by which a vision model describes its inputs: everything that shared code needs to put images into its
 * prompts.
 */
import type { ImageGrid, VideoSampling } from "../contract/generation-request.ts";
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

/** As in preprocessor_config.json. */
export type ProcessorOptions = Readonly<Record<string, CanonicalValue>>;

/** A picture as received. */
export interface EncodedImage {
  readonly bytes: Uint8Array;
  /** Names the picture in errors: `prompt.images[2]`. */
  readonly parameter: string;
  /** From an earlier call of `PixelProcessor.inspect`. */
  readonly header?: PictureHeader;
  /** Whether it is an item of a video. Default false. */
  readonly isOfVideo?: boolean;
  /** The request for which the picture is processed. If left out, it counts as a separate request. */
  readonly owner?: PictureOwner;
  /** Receives the tensors of the picture as soon as there are any. */
  readonly onProcessed?: (tensors: ProcessedPixels["tensors"]) => void;
}

/** Turns pictures into tensors off the calling thread. */
export interface PixelProcessor {
  /**
   * Size of the `pixel_values` that options make from a square picture, and the option that sets it. Null if the size
   * is the picture's own, and for models with their own program. Throws EngineError for unsupported options.
   */
  outputSize(options: ProcessorOptions): OutputSize | null;
  /** Reads the picture's header and checks the limits of one picture. Throws EngineError of pictures, or `aborted`. */
  inspect(image: EncodedImage, signal: AbortSignal): Promise<PictureHeader>;
  /**
   * Returns the tensors of one picture, without a batch dimension, and its original size. Throws EngineError of
   * pictures, `invalid_checkpoint` or `unsupported_model` for unsupported options, or `aborted`.
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

/** The result of processing images, in order. */
export interface ProcessedBatch {
  /** By the vision encoder's input names, all images together. */
  readonly fields: ReadonlyMap<string, BatchedTensor>;
  readonly imageSizes: readonly ImageSize[];
}

/** The facts that a prompt update can depend on: one image of a request. */
export type UpdateItem =
  | {
      readonly kind: "image";
      readonly imageSize: ImageSize;
      readonly tensors: ReadonlyMap<string, ItemTensor>;
      /** Whether it is an item of a video. Default false. */
      readonly isOfVideo?: boolean;
    }
  /** Its embeddings came with the request. */
  | { readonly kind: "embeddings"; readonly numEmbeddings: number; readonly grid: ImageGrid | null };

/** Text around each image of a prompt; empty where a model has none. */
export interface ImageMarkers {
  readonly imageStart: string;
  readonly imageEnd: string;
}

export const noMarkers: ImageMarkers = { imageStart: "", imageEnd: "" };

/** The frames of a video that a prompt shows. */
export interface ShownVideo extends ImageSize {
  /** By frame: its place among all frames of the file. Ascending; a multiple of `framesPerItem`, the last repeated. */
  readonly frameIndices: readonly number[];
  /** By frame: when it is shown, in seconds from the first frame of the file. */
  readonly frameSeconds: readonly number[];
  /** Of the file. */
  readonly numFrames: number;
  /** Of the file, on average. */
  readonly framesPerSecond: number;
  readonly durationSeconds: number;
}

/** One item of a video: `framesPerItem` frames from `index * framesPerItem` on. */
export interface VideoItem {
  /** Identical for all items of a video. */
  readonly video: ShownVideo;
  readonly index: number;
}

/** How a model that knows videos takes them. Each item of a video is processed and encoded like an image. */
export interface VideoInputs {
  /** What the chat template writes for a part `{"type": "video"}`, or prompts have in its place. */
  readonly placeholder: string;
  /**
   * Whether the chat template knows nothing of videos: a part of text with `placeholder` then takes the place of each.
   * Default false.
   */
  readonly placesVideosInText?: boolean;
  /**
   * For a chat template that writes the videos of a message, or of the whole conversation, behind its images, wherever they
   * stand. Default: where they stand.
   */
  readonly followImages?: "of-message" | "of-conversation";
  /** Frames whose pixels become the same patches. */
  readonly framesPerItem: number;
  /**
   * Ascending indices of the frames to show, at least one and at most `maxFrames`, of `file`; null for those of models
   * without a rule of their own. Throws EngineError `invalid_argument` for a sampling that the model excludes.
   */
  sampleFrames(file: VideoFile, sampling: VideoSampling, maxFrames: number): readonly number[] | null;
  /**
   * Options of the image processor for the items of a video, which are part of their hashes.
   *
   * @param options The checkpoint's for images, with the request's changes.
   * @param room Tokens of an item for which the prompt has room, for models that can make frames smaller. Left out if
   * the usual size fits, or if the request chooses the frames.
   */
  itemOptions(video: ShownVideo, options: ProcessorOptions, room?: number): ProcessorOptions;
  /** Of the last item, if it differs from the others, by their options. */
  lastItemOptions?(this: void, options: ProcessorOptions): ProcessorOptions;
  /** Text before that of video `index` of a prompt (from 0), for models that number their videos. Default: none. */
  numberText?(this: void, index: number): string;
  /** The text of a video in a prompt, in place of `placeholder`: one `imagePlaceholder` for each item, in order. */
  textOf(video: ShownVideo): string;
}

/** What is known of a video without decoding it. */
export type VideoFile = Omit<ShownVideo, "frameIndices" | "frameSeconds">;

export interface MultiModalProcessor {
  /** Left out for a model that knows only pictures: each frame of a video is then an image of its message. */
  readonly videos?: VideoInputs;
  /** The text of one image in a prompt; null if images have no placeholder in it. */
  readonly imagePlaceholder: string | null;
  /** The tokens of `imagePlaceholder` in a prompt; empty if that is null. */
  readonly imagePlaceholderTokenIds: readonly number[];
  /** Tokens that images bring into prompts, and that are not in the vocabulary of answers. Default: none. */
  readonly addedTokenIds?: readonly number[];
  /** Text around an image that a prompt has no placeholder for. Chat templates write it themselves. Default: none. */
  readonly markers?: ImageMarkers;
  /**
   * Whether the chat template knows nothing of images: each then stands at its place in the text of its message,
   * between the markers. Default false.
   */
  readonly placesImagesInText?: boolean;
  /** The checkpoint's options. With the request's changes, they are part of every item's hash. */
  readonly options: ProcessorOptions;
  /** Names of the options that a request may set. */
  readonly requestOptions: ReadonlySet<string>;
  /**
   * By option: older names for the same option, whose values in the checkpoint are ignored if a request sets the
   * option.
   */
  readonly replacedOptions?: Readonly<Record<string, readonly string[]>>;
  /**
   * The options for one of `numImages` images of a prompt, if their number changes how each is processed. They are part
   * of every item's hash.
   */
  optionsFor?(options: ProcessorOptions, numImages: number): ProcessorOptions;
  /**
   * The options for a frame of a video, without `videos`: for models that would cut each frame into many tiles. Default:
   * those of images.
   */
  frameOptions?(this: void, options: ProcessorOptions): ProcessorOptions;
  /**
   * Throws EngineError `invalid_checkpoint` or `unsupported_model` for options that it does not support, whatever the
   * picture. `parameter` is the path of the option (`image_std[0]`), with which the message starts.
   */
  checkOptions(options: ProcessorOptions): void;
  /**
   * Like `ProcessingInfo.numImageTokens`, for other options than the checkpoint's. Throws EngineError `invalid_image`
   * or `image_too_large` for a picture that these options exclude.
   */
  numImageTokens(size: ImageSize, options: ProcessorOptions): number;
  /** An item must not depend on the others of its batch. Throws like `PixelProcessor.process`. */
  processImages(
    images: readonly EncodedImage[],
    options: ProcessorOptions,
    signal: AbortSignal,
  ): Promise<ProcessedBatch>;
  /** How `ProcessedBatch.fields` are split into images. Fields without an entry are dropped. */
  fieldConfigs(batch: ProcessedBatch): Readonly<Record<string, FieldConfig>>;
  /**
   * Rules for all items. If there are several, an item uses the first whose target is in the prompt. Called without
   * items for each prompt, if a target is a function: that of a cached item depends on the prompt. Throws EngineError
   * `invalid_argument` for embeddings whose places are unknown.
   */
  promptUpdates(items: readonly UpdateItem[], options: ProcessorOptions): readonly PromptUpdate[];
  /**
   * Tokens before the content of image `index` of a prompt (from 0), for models that number their images; empty for
   * none. Images that truncation removed from the start of a prompt count. The tokens are no part of prompt updates,
   * because prompts share those of an image.
   */
  numberTokens?(this: void, index: number, options: ProcessorOptions): readonly number[];
  /**
   * The token as which the tokenizer spells two neighbours, for contents that begin or end with text that joins with the
   * prompt's, such as line breaks; null if it keeps them apart.
   */
  joinTokens?(this: void, left: number, right: number): number | null;
  /**
   * A change that the model makes to a prompt besides its images (for example a token at the end). Does not change its
   * argument, and is idempotent.
   */
  applyTokensOnly?(tokenIds: readonly number[], numImages: number): readonly number[];
  /**
   * Positions of a prompt's tokens, for models whose positions are not simply 0, 1, 2 and so on.
   *
   * @param images In the order of their placeholders; never empty. An image with cached embeddings has only its
   * smallest tensors, of at most 256 bytes.
   * @param tokenIds The whole prompt, of `numTokens` tokens.
   */
  promptPositions?(numTokens: number, images: readonly PlacedImage[], tokenIds: readonly number[]): PromptPositions;
}

/** An image of an expanded prompt. */
export interface PlacedImage {
  /** Given for an item of a video. */
  readonly videoItem?: VideoItem;
  readonly placeholder: PlaceholderRange;
  readonly tensors: ReadonlyMap<string, ItemTensor>;
}

/** Registered by an architecture to accept images. */
export interface MultiModalInputs<Context> {
  createProcessingInfo(context: Context): ProcessingInfo;
  createProcessor(info: ProcessingInfo, context: Context): MultiModalProcessor;
  /** Default: pictures of `info.imageSizeWithMostFeatures`, each with the processor's `imagePlaceholder` in the text. */
  createDummyInputs?(info: ProcessingInfo, context: Context): DummyInputsBuilder;
  /**
   * Module of a `PixelProgram`, for checkpoints with an unusual image processor or none, run by
   * `PixelProcessor.process`. If left out, preprocessor_config.json determines `pixel_values`.
   */
  readonly pixelProgram?: URL;
}
