/** The frames that video processors sample, and how prompts spell them, compared with transformers. */
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

import { EngineError } from "../../../engine/contract/errors.ts";
import { createGemma4Videos } from "../../../engine/models/gemma4/videos.ts";
import { glmVideosOf } from "../../../engine/models/glm4v/videos.ts";
import { createSmolVlmVideos } from "../../../engine/models/idefics3/videos.ts";
import { createInternVideos } from "../../../engine/models/internvl/videos.ts";
import { createMiniCpmVVideos } from "../../../engine/models/minicpm-v/videos.ts";
import type { VideoContext } from "../../../engine/models/model-definition.ts";
import {
  parseImageOptions,
  squareGrid,
  type Qwen2VlImageOptions,
} from "../../../engine/models/qwen2-vl/image-options.ts";
import { createVideoInputs } from "../../../engine/models/qwen2-vl/video-inputs.ts";
import type { ProcessorOptions, ShownVideo, VideoInputs } from "../../../engine/multimodal/multimodal-processor.ts";
import type { ImageSize } from "../../../engine/multimodal/processing-info.ts";
import { numberWords } from "../../../engine/videos/number-words.ts";
import { hoursMinutesAndSeconds, minutesAndSeconds, tenths } from "../../../engine/videos/timestamps.ts";

interface Row {
  readonly numFrames: number;
  readonly framesPerSecond: number;
  /** The first and the last twenty of more than forty. */
  readonly frameIndices: readonly number[];
  readonly numShown: number;
  readonly width?: number;
  readonly height?: number;
  readonly longest?: number;
  readonly frame?: readonly [height: number, width: number] | null;
}

const glmPictures = { resizes_like: "glm", size: { shortest_edge: 112 * 112, longest_edge: 2 ** 28 } };
const families = {
  glm4v: (videos: ProcessorOptions) => glm({ ...videos, video_processor_type: "Glm4vVideoProcessor" }),
  glm46v: (videos: ProcessorOptions) => glm({ ...videos, video_processor_type: "Glm46VVideoProcessor" }),
  gemma4: () => createGemma4Videos(contextOf({}, { num_frames: 32 })),
  internvl: () => createInternVideos(contextOf({}, { num_frames: 8, initial_shift: true })),
  internvlByRate: () => createInternVideos(contextOf({}, { fps: 2 })),
  minicpm: () => createMiniCpmVVideos(contextOf({}, null)),
  smolvlm: () => createSmolVlmVideos(contextOf({ video_sampling: { max_frames: 64, fps: 1 } }, null)),
} satisfies Record<string, (videos: ProcessorOptions) => VideoInputs>;
type Name = keyof typeof families;
const names = Object.keys(families) as Name[];

const file = new URL("../../fixtures/hub/videos/sampling.json", import.meta.url);
const recorded = JSON.parse(readFileSync(file, "utf8")) as Record<Name, readonly Row[]> & {
  readonly words: Readonly<Record<string, string>>;
};

function contextOf(images: ProcessorOptions, videos: ProcessorOptions | null): VideoContext {
  return { imageToken: "<image>", preprocessorConfig: images, videoPreprocessorConfig: videos };
}

function glm(videos: ProcessorOptions): VideoInputs {
  const context = contextOf(glmPictures, videos);
  return createVideoInputs(glmVideosOf(context), parseImageOptions(glmPictures), context);
}

/** Two frames are one item of GLM, so that an odd number of frames is filled up. */
function shownOf(row: Row, indices: readonly number[], framesPerItem: number): ShownVideo {
  const { numFrames, framesPerSecond, width = 1, height = 1 } = row;
  const frameIndices = indices.length % framesPerItem === 0 ? indices : [...indices, indices.at(-1)!];
  const frameSeconds = frameIndices.map((index) => index / framesPerSecond);
  const durationSeconds = numFrames / framesPerSecond;
  return { width, height, numFrames, framesPerSecond, durationSeconds, frameIndices, frameSeconds };
}

test.for(names)("the default frames of 60 videos are those of transformers: %s", (name) => {
  const rows = recorded[name];
  expect(rows).toHaveLength(60);
  const videos = families[name]({});
  for (const row of rows) {
    const frames = videos.sampleFrames(shownOf(row, [0], 1), {}, 100_000)!;
    const { frameIndices } = shownOf(row, frames, videos.framesPerItem);
    expect(frameIndices, JSON.stringify(row)).toHaveLength(row.numShown);
    const shown = frameIndices.length <= 40 ? frameIndices : [...frameIndices.slice(0, 20), ...frameIndices.slice(-20)];
    expect(shown, JSON.stringify(row)).toEqual(row.frameIndices);
  }
});

test.for(names)(
  "leaves other frames than the default ones to the engine, and shows no more than its limit: %s",
  (name) => {
    const videos = families[name]({});
    for (const row of recorded[name]) {
      const shown = shownOf(row, [0], 1);
      expect(videos.sampleFrames(shown, { numFrames: 3 }, 9)).toBeNull();
      expect(videos.sampleFrames(shown, { framesPerSecond: 3 }, 9)).toBeNull();
      const few = videos.sampleFrames(shown, {}, 3)!;
      expect(few.length).toBeGreaterThanOrEqual(1);
      expect(few.length).toBeLessThanOrEqual(3);
      expect(few).toEqual([...new Set(few)].sort((one, other) => one - other));
      expect(few.at(-1)).toBeLessThan(row.numFrames);
    }
  },
);

test.for(["glm4v", "glm46v"] as const)("the frames of 60 videos have the sizes of transformers: %s", (name) => {
  for (const row of recorded[name]) {
    const videos = families[name]({ size: { shortest_edge: 112 * 112, longest_edge: row.longest! } });
    const frames = videos.sampleFrames(shownOf(row, [0], 1), {}, 100_000)!;
    const options = parseImageOptions(videos.itemOptions(shownOf(row, frames, videos.framesPerItem), glmPictures));
    expect(resized({ width: row.width!, height: row.height! }, options), JSON.stringify(row)).toEqual(row.frame);
  }
});

function resized(size: ImageSize, options: Qwen2VlImageOptions): readonly number[] | null {
  try {
    const { rows, columns } = squareGrid(size, options);
    return [rows * options.squareSize, columns * options.squareSize];
  } catch (error) {
    if (error instanceof EngineError && error.code === "invalid_image") return null;
    throw error;
  }
}

test("a model without a rule for frames leaves them to the engine", () => {
  const shown = shownOf({ numFrames: 9, framesPerSecond: 1, frameIndices: [], numShown: 0 }, [0], 1);
  expect(createInternVideos(contextOf({}, {})).sampleFrames(shown, {}, 8)).toBeNull();
  expect(createSmolVlmVideos(contextOf({}, null)).sampleFrames(shown, {}, 8)).toBeNull();
});

test("a frame of a video has the options of the video processor, with what a request changes", () => {
  const images = { max_soft_tokens: 280, patch_size: 16, image_std: [1, 1, 1], position_embedding_size: 10_240 };
  const videos = { image_std: [2, 2, 2], num_frames: 32, video_processor_type: "Gemma4VideoProcessor" };
  const gemma = createGemma4Videos(contextOf(images, videos));
  const shown = shownOf({ numFrames: 9, framesPerSecond: 1, frameIndices: [], numShown: 0 }, [0], 1);
  const own = { max_soft_tokens: 70, patch_size: 16, image_std: [2, 2, 2], position_embedding_size: 10_240 };
  expect(gemma.itemOptions(shown, images)).toEqual(own);
  expect(gemma.itemOptions(shown, { ...images, max_soft_tokens: 140, resample: 1 })).toEqual({
    ...own,
    max_soft_tokens: 140,
    resample: 1,
  });
});

test("frames of tiled models are one tile, whatever a request asks for pictures", () => {
  const shown = shownOf({ numFrames: 9, framesPerSecond: 1, frameIndices: [], numShown: 0 }, [0], 1);
  const intern = createInternVideos(contextOf({ crop_to_patches: false }, null));
  expect(intern.itemOptions(shown, { crop_to_patches: true })).toEqual({ crop_to_patches: false });
  const smol = createSmolVlmVideos(contextOf({ do_image_splitting: false }, null));
  expect(smol.itemOptions(shown, { do_image_splitting: true })).toEqual({ do_image_splitting: false });
});

test("frames of MiniCPM-V lose their slices where a prompt has no room for them", () => {
  const shown = shownOf({ numFrames: 9, framesPerSecond: 1, frameIndices: [], numShown: 0 }, [0], 1);
  const minicpm = createMiniCpmVVideos(contextOf({ max_slice_nums: 9 }, null));
  expect(minicpm.itemOptions(shown, { max_slice_nums: 4 })).toEqual({ max_slice_nums: 4 });
  expect(minicpm.itemOptions(shown, { max_slice_nums: 4 }, 100)).toEqual({ max_slice_nums: 4, slice_mode: false });
});

test("times and numbers are spelled as by transformers", () => {
  expect(Object.keys(recorded.words).length).toBeGreaterThan(130);
  for (const [number, words] of Object.entries(recorded.words)) expect(numberWords(Number(number))).toBe(words);
  expect([0, 59.99, 65, 3725].map(minutesAndSeconds)).toEqual(["00:00", "00:59", "01:05", "62:05"]);
  expect([0, 65.9, 3725].map(hoursMinutesAndSeconds)).toEqual(["0:00:00", "0:01:05", "1:02:05"]);
  expect([0.25, 0.75, 0.15, 0.05, 2, 1.999].map(tenths)).toEqual(["0.2", "0.8", "0.1", "0.1", "2.0", "2.0"]);
});
