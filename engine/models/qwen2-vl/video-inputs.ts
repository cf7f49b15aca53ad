/** Videos in prompts of the Qwen-VL family and of GLM: the frames that share patches are one item. */
import { isDeepStrictEqual } from "node:util";

import { EngineError } from "../../contract/errors.ts";
import type {
  ProcessorOptions,
  ShownVideo,
  VideoFile,
  VideoInputs,
  VideoItem,
} from "../../multimodal/multimodal-processor.ts";
import { scalingOptions } from "../../multimodal/processor-options.ts";
import type { VideoContext } from "../model-definition.ts";
import type { Qwen2VlImageOptions } from "./image-options.ts";
import {
  frameOptions,
  numShownFrames,
  parseVideoOptions,
  type FrameLimits,
  type VideoOptions,
} from "./video-options.ts";

/** How a family takes videos. */
export interface PatchVideos {
  /** See `VideoInputs`. */
  readonly placeholder: string;
  /** The token of an item's embeddings; that of images if the tokenizer lacks it. */
  readonly token: string;
  /** transformers' defaults of the video processor. */
  readonly defaults: ProcessorOptions;
  readonly limits: FrameLimits;
  /** Like `VideoInputs.sampleFrames`, for a request that says nothing. */
  sampleFrames(this: void, file: VideoFile, options: VideoOptions, maxFrames: number): readonly number[];
  /**
   * The text of a video.
   *
   * @param items By item: when its frames are shown, in seconds.
   */
  textOf(this: void, items: readonly (readonly number[])[], imagePlaceholder: string): string;
}

/** Fields of config.json that are options of pictures. */
const picturesOnly = { resizes_like: null, tokens_per_second: null };

const valueOptions = ["resample", ...scalingOptions];

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` for options of the video processor. */
export function createVideoInputs(
  { placeholder, defaults, limits, sampleFrames, textOf }: PatchVideos,
  pictures: Qwen2VlImageOptions,
  { imageToken, preprocessorConfig, videoPreprocessorConfig = null }: VideoContext,
): VideoInputs {
  const { patch_size, merge_size, temporal_patch_size: framesPerItem } = pictures;
  const file = videoPreprocessorConfig ?? { ...preprocessorConfig, ...picturesOnly };
  const given = Object.fromEntries(Object.entries(file).filter(([, value]) => value !== null));
  const options = checked(
    { ...defaults, patch_size, merge_size, temporal_patch_size: framesPerItem, ...given },
    pictures,
  );
  const ownValues = Object.fromEntries(
    valueOptions.flatMap((name) => {
      const value = given[name];
      return value === undefined || isDeepStrictEqual(value, preprocessorConfig[name]) ? [] : [[name, value]];
    }),
  );
  return {
    placeholder,
    framesPerItem,
    sampleFrames(video, { numFrames, framesPerSecond }, maxFrames) {
      if (numFrames !== undefined || framesPerSecond !== undefined) return null;
      return sampleFrames(video, options, maxFrames);
    },
    itemOptions(video, ofPictures, room) {
      const perItem = positionsPerItem(video, pictures);
      return {
        ...frameOptions(video, { ...ofPictures, ...ownValues }, options, limits, room),
        // Prompts share the keys and values of equal items, so items must have equal positions.
        ...(perItem !== null && { positions_per_item: perItem }),
      };
    },
    textOf({ frameSeconds }) {
      const items = Array.from({ length: frameSeconds.length / framesPerItem }, (_, index) =>
        frameSeconds.slice(index * framesPerItem, (index + 1) * framesPerItem),
      );
      return textOf(items, imageToken);
    },
  };
}

function checked(json: ProcessorOptions, pictures: Qwen2VlImageOptions): VideoOptions {
  try {
    const options = parseVideoOptions(json);
    for (const name of ["patch_size", "merge_size", "temporal_patch_size"] as const) {
      if (options.frames[name] === pictures[name]) continue;
      throw new EngineError(
        "invalid_checkpoint",
        `${name} is ${options.frames[name]}; pictures have ${pictures[name]}.`,
      );
    }
    return options;
  } catch (error) {
    if (!(error instanceof EngineError)) throw error;
    throw new EngineError(error.code, `The checkpoint's video processor: ${error.message}`, { cause: error });
  }
}

/** Place in time of an item among those of its video: its index, or for Qwen2.5-VL in units of `tokens_per_second`. */
export function timeOf({ video, index }: VideoItem, pictures: Qwen2VlImageOptions): number {
  const perItem = positionsPerItem(video, pictures);
  return perItem === null ? index : Math.trunc(Math.fround(index * perItem));
}

/** More than any model's length. */
const MAX_POSITIONS_PER_ITEM = 2 ** 30;

/** In the numbers of transformers (float32); null if items are numbered. */
function positionsPerItem(
  video: ShownVideo,
  { tokens_per_second: perSecond, temporal_patch_size: numTimes }: Qwen2VlImageOptions,
): number | null {
  if (perSecond === undefined) return null;
  const sampledPerSecond = (numShownFrames(video) / video.numFrames) * video.framesPerSecond;
  return Math.min(Math.fround(perSecond * Math.fround(numTimes / sampledPerSecond)), MAX_POSITIONS_PER_ITEM);
}
