/** How LFM2-VL resizes a picture and cuts it into tiles: sizes and counts only, as in transformers' image processor. */
import { z } from "zod";

import type { ProcessorOptions } from "../../multimodal/multimodal-processor.ts";
import type { ImageSize } from "../../multimodal/processing-info.ts";
import {
  always,
  edge,
  filter,
  flag,
  integer,
  invalidOption,
  parseProcessorOptions,
  scalingFields,
  scalingOf,
} from "../../multimodal/processor-options.ts";
import { roundHalfToEven } from "../../round-half-to-even.ts";
import { fitSquares, type SquareGrid, type SquareLimits } from "../patches/square-grid.ts";
import { closestGrid } from "../tiles/closest-grid.ts";
import type { TileGridSize } from "../tiles/tile-values.ts";

const side = integer(1, 1024);
/** 10 by default. */
const tileCount = integer(1, 64);
/** 256 by default. */
const tokenCount = integer(1, 4096);
const tolerance = "a number from 0.1 to 100";

const tileOptions = z.object({
  ...scalingFields,
  // transformers resizes whatever the file says.
  do_resize: flag.default(true),
  resample: filter.default("bilinear"),
  do_image_splitting: flag.default(true),
  min_tiles: tileCount.default(2),
  max_tiles: tileCount.default(10),
  use_thumbnail: flag.default(true),
  min_image_tokens: tokenCount.default(64),
  max_image_tokens: tokenCount.default(256),
  tile_size: edge.default(512),
  max_pixels_tolerance: z.number(tolerance).min(0.1, tolerance).max(100, tolerance).default(2),
  // Their defaults are the encoder's sizes, which come from config.json.
  encoder_patch_size: side.default(16),
  downsample_factor: side.default(2),
  // In files of the hub, but the number of tokens determines the size.
  size: z.unknown().optional(),
  max_num_patches: z.unknown().optional(),
  // Pads the tiles of one batch to the same number of patches. Here each picture is processed alone.
  do_pad: always("tiles and pictures have different numbers of patches").default(true),
});

export interface Lfm2TileOptions extends z.output<typeof tileOptions>, SquareLimits {
  readonly scaling: ReturnType<typeof scalingOf>;
}

/** @throws EngineError like `parseProcessorOptions`. */
export function parseLfm2TileOptions(json: ProcessorOptions): Lfm2TileOptions {
  const options = parseProcessorOptions(tileOptions, json);
  const squareSize = options.encoder_patch_size * options.downsample_factor;
  if (options.tile_size % squareSize !== 0) {
    throw invalidOption("tile_size", `is ${options.tile_size}; expected a multiple of ${squareSize}`);
  }
  if (options.min_tiles > options.max_tiles) {
    throw invalidOption("min_tiles", `is ${options.min_tiles}; expected at most max_tiles, ${options.max_tiles}`);
  }
  if (options.min_image_tokens > options.max_image_tokens) {
    const limit = `expected at most max_image_tokens, ${options.max_image_tokens}`;
    throw invalidOption("min_image_tokens", `is ${options.min_image_tokens}; ${limit}`);
  }
  return {
    ...options,
    squareSize,
    minPixels: options.min_image_tokens * squareSize ** 2,
    maxPixels: options.max_image_tokens * squareSize ** 2,
    scaling: scalingOf(options),
  };
}

export interface PictureLayout {
  /** Null if the picture is not cut. */
  readonly tiles: TileGridSize | null;
  /** Squares of the whole picture, of which each becomes one embedding; null if only its tiles are shown. */
  readonly whole: SquareGrid | null;
}

export function layOutPicture(size: ImageSize, options: Lfm2TileOptions): PictureLayout {
  const { squareSize, maxPixels } = options;
  const nearest = {
    rows: Math.max(1, roundHalfToEven(size.height / squareSize)),
    columns: Math.max(1, roundHalfToEven(size.width / squareSize)),
  };
  const whole = fitSquares(size, nearest, options);
  const isLarge = isTooLarge(size, options, maxPixels * options.max_pixels_tolerance);
  const { do_image_splitting, min_tiles: fewest, max_tiles: most, tile_size: tile } = options;
  if (!isLarge || !do_image_splitting || most === 1) return { tiles: null, whole };
  const tiles = closestGrid(size, { fewest, most, tile });
  if (tiles.rows * tiles.columns === 1) return { tiles: null, whole };
  return { tiles, whole: options.use_thumbnail ? whole : null };
}

/** A side of less than half a square counts as one patch here. */
function isTooLarge(
  { width, height }: ImageSize,
  { squareSize, encoder_patch_size }: Lfm2TileOptions,
  mostPixels: number,
): boolean {
  const rounded = (length: number): number =>
    Math.max(encoder_patch_size, roundHalfToEven(length / squareSize) * squareSize);
  return rounded(height) * rounded(width) > mostPixels;
}

/** Embeddings of each tile. */
export function embeddingsPerTile({ tile_size, squareSize }: Lfm2TileOptions): number {
  return (tile_size / squareSize) ** 2;
}

export function numEmbeddings(size: ImageSize, options: Lfm2TileOptions): number {
  const { tiles, whole } = layOutPicture(size, options);
  const ofTiles = tiles === null ? 0 : tiles.rows * tiles.columns * embeddingsPerTile(options);
  return ofTiles + (whole === null ? 0 : whole.rows * whole.columns);
}

/**
 * A picture with the most embeddings, of those that are about as elongated as `max_image_tokens` squares or `max_tiles`
 * tiles in rows of equal length. Pictures that are far more elongated than any of them can have more, and are rejected.
 */
export function largestPicture(options: Lfm2TileOptions): ImageSize {
  const { max_image_tokens, max_tiles, tile_size, squareSize } = options;
  const mostParts = Math.max(max_image_tokens, max_tiles);
  let best: ImageSize = { width: squareSize, height: squareSize };
  let most = 0;
  // Large enough to be cut into the most tiles, and small enough to be enlarged.
  const areas = [
    2 * options.max_pixels_tolerance * options.maxPixels,
    max_tiles * tile_size ** 2,
    options.minPixels / 2,
  ];
  for (let rows = 1; rows <= mostParts; rows++) {
    for (let columns = 1; rows * columns <= mostParts; columns++) {
      for (const area of areas) {
        const unit = Math.sqrt(area / (rows * columns));
        const size = { width: Math.ceil(columns * unit), height: Math.ceil(rows * unit) };
        const count = numEmbeddings(size, options);
        if (count <= most) continue;
        most = count;
        best = size;
      }
    }
  }
  return best;
}
