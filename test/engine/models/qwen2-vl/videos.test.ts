/** The frames of videos that prompts of the Qwen-VL family show, their sizes, times and positions. */
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";

import { EngineError } from "../../../../engine/contract/errors.ts";
import { createSamplingParams } from "../../../../engine/contract/sampling-params.ts";
import { largestImageSize, parseImageOptions, squareGrid } from "../../../../engine/models/qwen2-vl/image-options.ts";
import { promptPositions, type PlacedGrid } from "../../../../engine/models/qwen2-vl/prompt-positions.ts";
import { createVideoInputs, timeOf } from "../../../../engine/models/qwen2-vl/video-inputs.ts";
import { qwen2VlVideos } from "../../../../engine/models/qwen2-vl/videos.ts";
import { qwen3VlVideos } from "../../../../engine/models/qwen3-vl/videos.ts";
import type { ProcessorOptions, ShownVideo, VideoInputs } from "../../../../engine/multimodal/multimodal-processor.ts";
import type { ImageSize } from "../../../../engine/multimodal/processing-info.ts";
import { createHubInputs } from "../../input/golden-inputs.ts";
import { upTo } from "../../videos/videos.ts";

interface Recorded extends ImageSize {
  readonly numFrames: number;
  readonly framesPerSecond: number;
  readonly size: { readonly shortest_edge: number; readonly longest_edge: number };
  readonly frameIndices: readonly number[];
  /** Null for a video that transformers rejects. */
  readonly frame: readonly [height: number, width: number] | null;
  readonly capped: readonly [height: number, width: number] | null;
  readonly seconds?: readonly string[];
  readonly times?: readonly number[];
}

const families = [
  { name: "qwen2-vl", videos: qwen2VlVideos, patch_size: 14 },
  { name: "qwen3-vl", videos: qwen3VlVideos, patch_size: 16 },
] as const;
type Family = (typeof families)[number];

function recordedOf({ name }: Family): readonly Recorded[] {
  const file = new URL(`../../../fixtures/hub/${name}/sampled_videos.json`, import.meta.url);
  return JSON.parse(readFileSync(file, "utf8")) as Recorded[];
}

const anyPicture = { size: { shortest_edge: 1, longest_edge: 2 ** 28 } };

function inputsOf(
  { videos, patch_size }: Family,
  ofVideos: ProcessorOptions | null,
  ofPictures: ProcessorOptions = anyPicture,
): VideoInputs {
  const preprocessorConfig = { patch_size, ...ofPictures };
  const context = { imageToken: "<|image_pad|>", preprocessorConfig, videoPreprocessorConfig: ofVideos };
  return createVideoInputs(videos, parseImageOptions(preprocessorConfig), context);
}

/** As the engine shows it: the last frame fills the last item. */
function shownOf(recorded: Recorded, frameIndices = recorded.frameIndices): ShownVideo {
  const indices = frameIndices.length % 2 === 0 ? frameIndices : [...frameIndices, frameIndices.at(-1)!];
  const { numFrames, framesPerSecond, width, height } = recorded;
  return {
    numFrames,
    framesPerSecond,
    width,
    height,
    durationSeconds: numFrames / framesPerSecond,
    frameIndices: indices,
    frameSeconds: indices.map((index) => index / framesPerSecond),
  };
}

function frameOf(options: ProcessorOptions, size: ImageSize): readonly number[] | null {
  const parsed = parseImageOptions(options);
  try {
    const { rows, columns } = squareGrid(size, parsed);
    return [rows * parsed.squareSize, columns * parsed.squareSize];
  } catch (error) {
    if (error instanceof EngineError && error.code === "invalid_image") return null;
    throw error;
  }
}

describe.for(families)("$name", (family) => {
  const recorded = recordedOf(family);

  test("80 videos show the frames that transformers samples, in its sizes", () => {
    expect(recorded).toHaveLength(80);
    for (const row of recorded) {
      for (const [expected, cap_pixels_per_frame] of [
        [row.frame, false],
        [row.capped, true],
      ] as const) {
        const ofVideos = { size: row.size, patch_size: family.patch_size, fps: 2, cap_pixels_per_frame };
        const videos = inputsOf(family, ofVideos);
        const shown = shownOf(row);
        expect(videos.sampleFrames(shown, {}, 768), JSON.stringify(row)).toEqual(row.frameIndices);
        const options = videos.itemOptions(shown, { patch_size: family.patch_size, ...anyPicture });
        expect(frameOf(options, row), JSON.stringify(row)).toEqual(expected);
      }
    }
  });

  test("leaves the frames to the engine if a request says which it wants", () => {
    const videos = inputsOf(family, null);
    const shown = shownOf(recorded[0]!);
    expect(videos.sampleFrames(shown, { numFrames: 3 }, 768)).toBe(null);
    expect(videos.sampleFrames(shown, { framesPerSecond: 3 }, 768)).toBe(null);
  });

  test("shows at most as many frames as the server allows, at equal distances", () => {
    const videos = inputsOf(family, null);
    const long = shownOf({ ...recorded[0]!, numFrames: 1000, framesPerSecond: 10 });
    const indices = videos.sampleFrames(long, {}, 9)!;
    expect(indices).toHaveLength(family.name === "qwen2-vl" ? 8 : 9);
    const distances = new Set(indices.slice(1).map((index, at) => index - indices[at]!));
    expect(Math.max(...distances) - Math.min(...distances)).toBeLessThanOrEqual(1);
    expect(videos.sampleFrames(long, {}, 1)).toEqual([0]);
    expect(videos.sampleFrames({ ...long, numFrames: 1 }, {}, 9)).toEqual([0]);
  });

  test.for([
    { shortest_edge: 3136, longest_edge: 50_176 },
    { shortest_edge: 3136, longest_edge: 802_816 },
    { shortest_edge: 100_000, longest_edge: 100_000 },
  ])("no frame has more squares than the largest picture of $shortest_edge to $longest_edge", (size) => {
    const ofPictures = { patch_size: family.patch_size, size };
    const parsed = parseImageOptions(ofPictures);
    const count = (of: ImageSize, options: ProcessorOptions): number => {
      const { rows, columns } = squareGrid(of, parseImageOptions(options));
      return rows * columns;
    };
    const most = count(largestImageSize(parsed), ofPictures);
    const larger: object[] = [];
    for (const shortest_edge of [3136, 60_000, 100_352, 400_000]) {
      const videos = inputsOf(family, { size: { shortest_edge, longest_edge: 25_165_824 } }, ofPictures);
      for (const numFrames of [2, 3, 5, 8, 33]) {
        const indices = Array.from({ length: numFrames }, (_, index) => index);
        for (let width = 5; width < 6000; width = Math.ceil(width * 1.31)) {
          for (let height = Math.ceil(width / 190); height < width * 190; height = Math.ceil(height * 1.47)) {
            const shown = shownOf({ ...recorded[0]!, width, height }, indices);
            const numSquares = count(shown, videos.itemOptions(shown, ofPictures));
            if (numSquares > most) larger.push({ width, height, numFrames, shortest_edge, numSquares });
          }
        }
      }
    }
    expect(larger).toEqual([]);
  });

  test("makes frames smaller where the prompt has less room, but no smaller than 128 tokens", () => {
    const videos = inputsOf(family, null);
    const shown = { ...shownOf(recorded[0]!, upTo(32)), width: 1920, height: 1080 };
    const tokensFor = (room?: number): number => {
      const ofPictures = { patch_size: family.patch_size, ...anyPicture };
      const { rows, columns } = squareGrid(shown, parseImageOptions(videos.itemOptions(shown, ofPictures, room)));
      return rows * columns;
    };
    const usual = tokensFor();
    expect(usual).toBeGreaterThan(1000);
    expect(tokensFor(usual)).toBe(usual);
    expect(tokensFor(300)).toBeLessThanOrEqual(300);
    expect(tokensFor(300)).toBeGreaterThan(250);
    expect(tokensFor(20)).toBeLessThanOrEqual(128);
    expect(tokensFor(20)).toBeGreaterThan(100);
  });

  test("rejects a video processor whose patches differ from those of pictures, and unknown options", () => {
    expect(() => inputsOf(family, { patch_size: 7 })).toThrow(
      `The checkpoint's video processor: patch_size is 7; pictures have ${family.patch_size}.`,
    );
    expect(() => inputsOf(family, { motion: 3 })).toThrow("The checkpoint's video processor: motion is not supported.");
  });

  test("values of frames follow the video processor where its file differs", () => {
    const videos = inputsOf(family, { image_mean: [0.1, 0.2, 0.3], image_std: [0.5, 0.5, 0.5] });
    const options = videos.itemOptions(shownOf(recorded[0]!), { image_std: [1, 1, 1] });
    expect(options).toMatchObject({ image_mean: [0.1, 0.2, 0.3] });
  });
});

test("qwen2.5-vl: items follow each other by their seconds, in float32", () => {
  const options = parseImageOptions({ tokens_per_second: 2 });
  for (const row of recordedOf(families[0])) {
    const video = shownOf(row);
    const perItem = row.times!.length / (video.frameIndices.length / 2);
    const times = row.times!.filter((_, index) => index % perItem === 0);
    expect(times.map((_, index) => timeOf({ video, index }, options))).toEqual(times);
  }
});

test("qwen2.5-vl: frames at another rate are other items, since prompts with equal items share their positions", () => {
  const video = shownOf(recordedOf(families[0])[0]!, [0, 1, 2, 3]);
  const slower = { ...video, framesPerSecond: video.framesPerSecond / 2 };
  const optionsOf = (shown: ShownVideo, ofPictures: ProcessorOptions) =>
    inputsOf(families[0], null, ofPictures).itemOptions(shown, ofPictures);
  const qwen25 = { ...anyPicture, tokens_per_second: 2 };
  expect(optionsOf(slower, qwen25)).not.toEqual(optionsOf(video, qwen25));
  expect(optionsOf({ ...video, height: 7 }, qwen25)).toEqual(optionsOf(video, qwen25));
  expect(optionsOf(slower, anyPicture)).toEqual(optionsOf(video, anyPicture));
});

test("qwen3-vl: each item has its seconds before it, rounded as by Python", () => {
  for (const row of recordedOf(families[1])) {
    const expected = row.seconds!.map((seconds) => `<${seconds} seconds><|vision_start|><|image_pad|><|vision_end|>`);
    expect(inputsOf(families[1], null).textOf(shownOf(row))).toBe(expected.join(""));
  }
});

test("qwen2-vl: a video is one placeholder of pictures for each item", () => {
  const video = shownOf(recordedOf(families[0])[0]!, [0, 1, 2]);
  expect(inputsOf(families[0], null).textOf(video)).toBe("<|image_pad|><|image_pad|>");
});

test.for([
  { maxModelLen: 4096, numItems: 3, tokens: [1700, 2100] },
  // Each item with a share of three quarters.
  { maxModelLen: 900, numItems: 3, tokens: [200, 675] },
  { maxModelLen: 170, numItems: 1, tokens: [40, 127] },
])("a prompt of $maxModelLen tokens shows $numItems pairs of frames", async ({ maxModelLen, numItems, tokens }) => {
  const size = { shortest_edge: 3_000_000, longest_edge: 16_777_216 };
  await using inputs = await createHubInputs("qwen3-vl", { maxModelLen, settings: { mmProcessorOptions: { size } } });
  const file = new URL("../../../fixtures/hub/videos/moving.mp4", import.meta.url);
  const reference = `data:video/mp4;base64,${readFileSync(file, "base64")}`;
  const messages = [{ role: "user", content: [{ type: "video", reference }] }] as const;
  const prompt = { kind: "chat", messages, addGenerationPrompt: true } as const;
  const request = { requestId: "request", prompt, samplingParams: createSamplingParams() };
  const { images } = await inputs.inputProcessor.process(request, new AbortController().signal);
  const numTokens = images.reduce((sum, { placeholder }) => sum + placeholder.length, 0);
  expect(images).toHaveLength(numItems);
  expect(numTokens).toBeGreaterThanOrEqual(tokens[0]!);
  expect(numTokens).toBeLessThanOrEqual(tokens[1]!);
});

test("items of a video without text between them are one block in time, and text follows its largest position", () => {
  const item = (offset: number, index: number, time: number): PlacedGrid => ({
    offset,
    rows: 1,
    columns: 2,
    item: { index, time },
  });
  // A word, three items, a word, an item that follows text, and a word.
  const { axes, next } = promptPositions(11, [item(1, 0, 0), item(3, 1, 4), item(5, 2, 8), item(8, 3, 12)]);
  const axis = (index: number) => Array.from(axes.subarray(11 * index, 11 * (index + 1)));
  expect(axis(0)).toEqual([0, 1, 1, 5, 5, 9, 9, 10, 11, 11, 13]);
  expect(axis(1)).toEqual([0, 1, 1, 1, 1, 1, 1, 10, 11, 11, 13]);
  expect(axis(2)).toEqual([0, 1, 2, 1, 2, 1, 2, 10, 11, 12, 13]);
  expect(next).toBe(14);
});
