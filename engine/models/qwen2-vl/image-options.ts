/** Qwen2-VL's preprocessor_config.json, and the grid of patches that it makes from a picture. */
import { z } from "zod";

import type { ProcessorOptions } from "../../multimodal/multimodal-processor.ts";
import type { ImageSize } from "../../multimodal/processing-info.ts";
import {
  always,
  clipScalingFields,
  filter,
  integer,
  parseProcessorOptions,
  scalingOf,
  unsupportedOption,
} from "../../multimodal/processor-options.ts";
import { roundHalfToEven } from "../../round-half-to-even.ts";
import { MOST_ELONGATED, refuseElongated } from "../elongation.ts";
import { fitSquares, type CountedFrames, type SquareGrid } from "../patches/square-grid.ts";

/** Pixels of a whole picture: decoders do not accept more. */
const numPixels = integer(1, 2 ** 28);
/**
 * Size of a patch or square, in pixels, patches or pictures. The encoder's own size is checked where both are known.
 */
const smallCount = integer(1, 1024);

const sizeForm =
  'an object such as {"shortest_edge": 3136, "longest_edge": 1003520}, both in pixels of the whole picture';

const imageOptions = z.object({
  ...clipScalingFields,
  do_resize: always("this model always resizes pictures").default(true),
  resample: filter.default("bicubic"),
  /** In pixels of the whole picture, whatever the names say. transformers 4.45 to 4.48 wrote the second pair of names. */
  size: z
    .union(
      [
        z.strictObject(
          {
            shortest_edge: numPixels,
            longest_edge: numPixels,
            min_pixels: numPixels.optional(),
            max_pixels: numPixels.optional(),
          },
          sizeForm,
        ),
        z.strictObject({ min_pixels: numPixels, max_pixels: numPixels }, sizeForm),
      ],
      sizeForm,
    )
    .optional(),
  min_pixels: numPixels.optional(),
  max_pixels: numPixels.optional(),
  patch_size: smallCount.optional(),
  temporal_patch_size: smallCount.optional(),
  merge_size: smallCount.default(2),
  /** From config.json: whose processor resizes the picture. */
  resizes_like: z.enum(["qwen", "glm", "paddleocr", "hunyuan"]).default("qwen"),
  /** From config.json: positions in time of a second of a video. */
  tokens_per_second: z.number().optional(),
  /** Set for a frame if such positions follow from the other frames: no other frame is the same item. */
  positions_per_item: z.number().optional(),
  /** Set for a frame of a video whose limits count the pixels of all its frames. */
  video_frames: integer(1, 2 ** 28).optional(),
});

interface Resizing {
  /** Default of `size`. */
  readonly size: { readonly shortest_edge: number; readonly longest_edge: number };
  /** Default of `patch_size`. */
  readonly patchSize: number;
  /** Default of `temporal_patch_size`. */
  readonly numTimes: number;
  /** The filter in place of `resample`; null for the option. */
  readonly filter: z.output<typeof filter> | null;
  /** Whether `size` counts the pixels of all pictures that a patch spans, and older names of it are no options. */
  readonly countsTimes: boolean;
  /** Enlarges a picture that is smaller than a square. */
  grow(this: void, size: ImageSize, squareSize: number): ImageSize;
}

const qwenResizing: Resizing = {
  size: { shortest_edge: 56 * 56, longest_edge: 28 * 28 * 1280 },
  patchSize: 14,
  numTimes: 2,
  filter: null,
  countsTimes: false,
  grow: (size) => size,
};

const resizings: Readonly<Record<z.output<typeof imageOptions>["resizes_like"], Resizing>> = {
  qwen: qwenResizing,
  glm: {
    ...qwenResizing,
    size: { shortest_edge: 112 * 112, longest_edge: 28 * 28 * 15_000 },
    countsTimes: true,
    grow: grownAsByGlm,
  },
  paddleocr: {
    ...qwenResizing,
    size: { shortest_edge: 384 * 384, longest_edge: 1536 * 1536 },
    numTimes: 1,
    grow: grownAsByPaddleOcr,
  },
  hunyuan: {
    ...qwenResizing,
    size: { shortest_edge: 512 * 512, longest_edge: 2048 * 2048 },
    patchSize: 16,
    numTimes: 1,
    // Files on the hub say 1 (Lanczos), which neither its own code nor transformers reads.
    filter: "bicubic",
  },
};

export interface Qwen2VlImageOptions extends z.output<typeof imageOptions> {
  readonly grow: Resizing["grow"];
  readonly patch_size: number;
  readonly temporal_patch_size: number;
  readonly minPixels: number;
  readonly maxPixels: number;
  readonly video: CountedFrames | null;
  /** Side of a square of patches that becomes one embedding, in pixels. */
  readonly squareSize: number;
  readonly scaling: ReturnType<typeof scalingOf>;
}

/** @throws EngineError like `parseProcessorOptions`. */
export function parseImageOptions(json: ProcessorOptions): Qwen2VlImageOptions {
  const options = parseProcessorOptions(imageOptions, json);
  const { min_pixels, max_pixels } = options;
  const resizing = resizings[options.resizes_like];
  const patchSize = options.patch_size ?? resizing.patchSize;
  const numTimes = options.temporal_patch_size ?? resizing.numTimes;
  const size = options.size ?? resizing.size;
  const older = (["min_pixels", "max_pixels"] as const).find((name) => options[name] !== undefined || name in size);
  if (resizing.countsTimes && older !== undefined) {
    throw unsupportedOption(
      older,
      "is not an option of this model's image processor; set size.shortest_edge and size.longest_edge",
    );
  }
  const { shortest_edge, longest_edge } =
    "shortest_edge" in size ? size : { shortest_edge: size.min_pixels, longest_edge: size.max_pixels };
  const numCounted = resizing.countsTimes && options.video_frames === undefined ? numTimes : 1;
  return {
    ...options,
    resample: resizing.filter ?? options.resample,
    patch_size: patchSize,
    temporal_patch_size: numTimes,
    minPixels: (min_pixels ?? shortest_edge) / numCounted,
    maxPixels: (max_pixels ?? longest_edge) / numCounted,
    video: options.video_frames === undefined ? null : { numFrames: options.video_frames, numTimes },
    grow: resizing.grow,
    squareSize: patchSize * options.merge_size,
    scaling: scalingOf(options),
  };
}

/**
 * The grid closest to the picture's own size and shape, within the minimum and maximum number of pixels of the options:
 * transformers' `smart_resize`. Throws EngineError `invalid_image` for a picture that is too elongated.
 */
export function squareGrid(size: ImageSize, options: Qwen2VlImageOptions): SquareGrid {
  const { squareSize } = options;
  const { width, height } = options.grow(size, squareSize);
  refuseElongated({ width, height }, size);
  const nearest = { rows: roundHalfToEven(height / squareSize), columns: roundHalfToEven(width / squareSize) };
  return fitSquares({ width, height }, nearest, options);
}

function grownAsByGlm({ width, height }: ImageSize, squareSize: number): ImageSize {
  if (Math.min(width, height) >= squareSize) return { width, height };
  const scale = Math.max(squareSize / height, squareSize / width);
  return { width: Math.trunc(width * scale), height: Math.trunc(height * scale) };
}

/** One side after the other. */
function grownAsByPaddleOcr({ width, height }: ImageSize, squareSize: number): ImageSize {
  const wide = height < squareSize ? roundHalfToEven((width * squareSize) / height) : width;
  const tall = Math.max(height, squareSize);
  if (wide >= squareSize) return { width: wide, height: tall };
  return { width: squareSize, height: roundHalfToEven((tall * squareSize) / wide) };
}

/**
 * A picture that becomes as many embeddings as any other.
 *
 * @param count Embeddings of a grid: its squares, and at most one more for each row beside a fixed number.
 */
export function largestImageSize(
  options: Qwen2VlImageOptions,
  count: (grid: SquareGrid) => number = ({ rows, columns }) => rows * columns,
): ImageSize {
  let best: ImageSize = { width: 1, height: 1 };
  let mostEmbeddings = 0;
  const wide = [...stripsOf(options), ...candidatesForMost(options)];
  const tall = wide.map(({ width, height }) => ({ width: height, height: width }));
  for (const size of [...tall, ...wide]) {
    const numEmbeddings = count(squareGrid(size, options));
    if (numEmbeddings < mostEmbeddings) continue;
    mostEmbeddings = numEmbeddings;
    best = size;
  }
  return best;
}

/** For each number of rows, the longest pictures that `squareGrid` neither scales down nor up. */
function* stripsOf({ maxPixels, squareSize }: Qwen2VlImageOptions): Iterable<ImageSize> {
  const mostSquares = Math.max(Math.floor(maxPixels / squareSize ** 2), 1);
  for (let rows = 1; rows ** 2 <= mostSquares; rows++) {
    for (const height of [rows * squareSize, Math.ceil((rows + 0.5) * squareSize) - 1]) {
      const columns = Math.min(Math.floor(mostSquares / rows), Math.floor((height * MOST_ELONGATED) / squareSize));
      yield { width: columns * squareSize, height };
    }
  }
}

/** Heights per number of rows that are tried for a picture that is scaled up. */
const MAX_TRIED_HEIGHTS = 64;

/**
 * Pictures among which one has the most squares. None has more if `squareGrid` keeps its size (the largest grid within
 * the limit), scales it down (each side is rounded down, but to no less than one square: the most elongated picture),
 * or scales it up (each side is rounded up: pictures a little less elongated than one with a row less).
 */
function* candidatesForMost({ minPixels, maxPixels, squareSize }: Qwen2VlImageOptions): Iterable<ImageSize> {
  const squareArea = squareSize ** 2;
  yield sizeOf(largestGrid(Math.max(Math.floor(maxPixels / squareArea), 1)), squareSize);
  // Whatever the limit is, this one is scaled down.
  const longSide = MOST_ELONGATED * Math.ceil(Math.sqrt(maxPixels));
  yield { width: longSide, height: longSide / MOST_ELONGATED };
  yield { width: MOST_ELONGATED * squareSize, height: squareSize };
  yield { width: MOST_ELONGATED, height: 1 };
  const fewestSquares = minPixels / squareArea;
  // Scaled up, a picture of one row becomes two rows, and one column longer.
  if (minPixels < maxPixels && 2 * (fewestSquares + 1) < maxPixels / squareArea) return;
  for (let rows = 1; rows <= Math.sqrt(fewestSquares); rows++) {
    const tallest = rows * squareSize;
    for (let height = tallest; height > Math.max(tallest - MAX_TRIED_HEIGHTS, 0); height--) {
      const width = Math.ceil((fewestSquares * height) / rows ** 2) - 1;
      if (width >= height) yield { width: Math.min(width, height * MOST_ELONGATED), height };
    }
  }
}

function largestGrid(mostSquares: number): SquareGrid {
  let best = { rows: 1, columns: 1 };
  for (let rows = 1; rows * rows <= mostSquares; rows++) {
    const columns = Math.min(Math.floor(mostSquares / rows), rows * MOST_ELONGATED);
    if (rows * columns >= best.rows * best.columns) best = { rows, columns };
  }
  return best;
}

function sizeOf({ rows, columns }: SquareGrid, squareSize: number): ImageSize {
  return { width: columns * squareSize, height: rows * squareSize };
}
