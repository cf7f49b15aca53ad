/** How Molmo 2 cuts a picture into overlapping crops: sizes and counts only, as in transformers' Molmo2ImageProcessor. */
import { z } from "zod";

import type { ProcessorOptions } from "../../multimodal/multimodal-processor.ts";
import type { ImageSize } from "../../multimodal/processing-info.ts";
import {
  always,
  edge,
  flag,
  integer,
  invalidOption,
  parseProcessorOptions,
  scalingFields,
  scalingOf,
  unsupportedOption,
} from "../../multimodal/processor-options.ts";
import type { TileGridSize } from "../tiles/tile-values.ts";

/** Four times the default of 8. */
const MOST_CROPS = 32;
/** Patches that become one embedding: 2x2 of pictures and 3x3 of frames in the published processors. */
export const MOST_POOLED = 9;
const margin = integer(0, 128);
const poolingSide = integer(1, MOST_POOLED);
const BILINEAR = 2;

const cropOptions = z.object({
  ...scalingFields,
  do_resize: always("this model always resizes pictures to crops").default(true),
  resample: z.literal(BILINEAR, `${BILINEAR} (bilinear), which this model was trained with`).default(BILINEAR),
  size: z
    .strictObject({ height: edge, width: edge }, 'an object such as {"height": 378, "width": 378}')
    .default({ height: 378, width: 378 }),
  max_crops: integer(1, MOST_CROPS).default(8),
  overlap_margins: z.tuple([margin, margin], "two numbers of patches").default([4, 4]),
  patch_size: integer(1, 1024).default(14),
  pooling_size: z.tuple([poolingSide, poolingSide], "two numbers of patches").default([2, 2]),
  image_use_col_tokens: flag.default(true),
  use_single_crop_col_tokens: flag.optional(),
  use_single_crop_start_token: flag.default(true),
  video_use_col_tokens: flag.default(false),
  use_frame_special_tokens: flag.default(true),
  is_frame: flag.default(false),
});

/** Names of the options. */
export const cropFields: ReadonlySet<string> = new Set(Object.keys(cropOptions.shape));

export interface CropOptions extends z.output<typeof cropOptions> {
  /** Side of a crop, in pixels. */
  readonly side: number;
  /** Side of a crop, in patches. */
  readonly patchesPerSide: number;
  /** Side of the part of a crop that no other has, in patches. */
  readonly windowPatches: number;
  readonly scaling: ReturnType<typeof scalingOf>;
}

/** @throws EngineError like `parseProcessorOptions`. */
export function parseCropOptions(json: ProcessorOptions): CropOptions {
  const options = parseProcessorOptions(cropOptions, json);
  const { size, patch_size: patch, overlap_margins: margins } = options;
  if (size.height !== size.width) throw invalidOption("size", `is ${size.height}x${size.width}; expected a square`);
  if (size.width % patch !== 0) throw invalidOption("patch_size", `is ${patch}; ${size.width} is no multiple of it`);
  const patchesPerSide = size.width / patch;
  const windowPatches = patchesPerSide - margins[0] - margins[1];
  const [height, width] = options.pooling_size;
  if (height * width > MOST_POOLED) {
    throw unsupportedOption("pooling_size", `is ${height}x${width}; at most ${MOST_POOLED} patches are pooled`);
  }
  if (windowPatches < 1) {
    throw invalidOption(
      "overlap_margins",
      `are ${margins.join(" and ")}; a crop has ${patchesPerSide} patches per side`,
    );
  }
  return { ...options, side: size.width, patchesPerSide, windowPatches, scaling: scalingOf(options) };
}

/** Grids of embeddings. */
export interface PooledGrids {
  readonly whole: TileGridSize;
  /** Null for a frame of a video, which has no crops. */
  readonly crops: TileGridSize | null;
}

export function pooledGrids(size: ImageSize, options: CropOptions): PooledGrids {
  const { patchesPerSide: side } = options;
  const whole = pooled({ rows: side, columns: side }, options);
  return { whole, crops: options.is_frame ? null : pooled(canvasPatches(cropGrid(size, options), options), options) };
}

function pooled({ rows, columns }: TileGridSize, { pooling_size: [height, width] }: CropOptions): TileGridSize {
  return { rows: Math.ceil(rows / height), columns: Math.ceil(columns / width) };
}

/** Patches of the picture that the crops make together. */
export function canvasPatches({ rows, columns }: TileGridSize, options: CropOptions): TileGridSize {
  const { windowPatches, patchesPerSide } = options;
  const overlap = patchesPerSide - windowPatches;
  return { rows: rows * windowPatches + overlap, columns: columns * windowPatches + overlap };
}

/**
 * The crops of a picture: the fewest that need not shrink it, or if all would, those that shrink it least. Divisions are
 * those of 32 bits, as in transformers, so that equal scales are equal there too.
 */
export function cropGrid({ width, height }: ImageSize, options: CropOptions): TileGridSize {
  const { patch_size: patch, windowPatches, patchesPerSide } = options;
  const overlap = (patchesPerSide - windowPatches) * patch;
  const window = windowPatches * patch;
  const candidates = cropGrids(options).map((grid) => {
    const scales = [(grid.rows * window) / (height - overlap), (grid.columns * window) / (width - overlap)];
    return { grid, scale: Math.min(...scales.map(Math.fround)) };
  });
  const enough = candidates.filter(({ scale }) => scale >= 1);
  const isEnough = enough.length > 0;
  const ordered = isEnough ? enough : candidates;
  return ordered.reduce((best, next) => ((isEnough ? next.scale < best.scale : next.scale > best.scale) ? next : best))
    .grid;
}

/** By their number; among equal ones by rows. */
function cropGrids({ max_crops: most }: CropOptions): TileGridSize[] {
  const found: TileGridSize[] = [];
  for (let rows = 1; rows <= most; rows++) {
    for (let columns = 1; rows * columns <= most; columns++) found.push({ rows, columns });
  }
  return found.sort((one, other) => one.rows * one.columns - other.rows * other.columns || one.rows - other.rows);
}

/** A picture with the most tokens. */
export function largestPicture(options: CropOptions, numTokens: (size: ImageSize) => number): ImageSize {
  const { patch_size: patch } = options;
  const sizes = cropGrids(options).map((grid) => {
    const { rows, columns } = canvasPatches(grid, options);
    return { width: columns * patch, height: rows * patch };
  });
  return sizes.reduce((largest, size) => (numTokens(size) > numTokens(largest) ? size : largest));
}
