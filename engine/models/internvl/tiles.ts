/** How InternVL cuts a picture into tiles: sizes and counts only, as in transformers' GotOcr2ImageProcessor. */
import { z } from "zod";

import type { ProcessorOptions } from "../../multimodal/multimodal-processor.ts";
import type { ImageSize } from "../../multimodal/processing-info.ts";
import {
  always,
  clipScalingFields,
  edge,
  filter,
  flag,
  integer,
  invalidOption,
  parseProcessorOptions,
  scalingOf,
} from "../../multimodal/processor-options.ts";
import { closestGrid } from "../tiles/closest-grid.ts";
import type { TileGridSize } from "../tiles/tile-values.ts";

/** Tiles of a picture; ten times the default of 12. */
const patchCount = integer(1, 128);

export const internTileFields = {
  ...clipScalingFields,
  do_resize: always("this model always resizes pictures to tiles").default(true),
  resample: filter.default("bicubic"),
  size: z
    .strictObject({ height: edge, width: edge }, 'an object such as {"height": 448, "width": 448}')
    .default({ height: 384, width: 384 }),
  default_to_square: flag.default(true),
  crop_to_patches: flag.default(false),
  min_patches: patchCount.default(1),
  max_patches: patchCount.default(12),
};
const tileOptions = z.object(internTileFields);
type TileFields = z.output<typeof tileOptions>;

interface CheckedTiles {
  /** Side of a tile, in pixels. */
  readonly tile: number;
  readonly scaling: ReturnType<typeof scalingOf>;
}

export type InternTileOptions = TileFields & CheckedTiles;

/** @throws EngineError like `parseProcessorOptions`. */
export function parseInternTileOptions(json: ProcessorOptions): InternTileOptions {
  return checkedTiles(parseProcessorOptions(tileOptions, json));
}

/** @throws EngineError like `parseProcessorOptions`. */
export function checkedTiles<Options extends TileFields>(options: Options): Options & CheckedTiles {
  const { height, width } = options.size;
  if (height !== width) throw invalidOption("size", `is ${height}x${width}; expected a square`);
  if (options.min_patches > options.max_patches) {
    throw invalidOption(
      "min_patches",
      `is ${options.min_patches}; expected at most max_patches, ${options.max_patches}`,
    );
  }
  return { ...options, tile: width, scaling: scalingOf(options) };
}

/** The tiles of a picture. A picture of more than one is also shown as a whole, in one more. */
export function internGrid(size: ImageSize, options: InternTileOptions): TileGridSize {
  const { crop_to_patches, min_patches, max_patches, tile } = options;
  if (!crop_to_patches || max_patches === 1) return { rows: 1, columns: 1 };
  return closestGrid(size, { fewest: min_patches, most: max_patches, tile });
}

export function numInternTiles({ rows, columns }: TileGridSize): number {
  return rows * columns === 1 ? 1 : rows * columns + 1;
}

/** A picture that is cut into `max_patches` tiles, as square as they can lie. */
export function largestInternSize(options: InternTileOptions): ImageSize {
  const { crop_to_patches, max_patches, tile } = options;
  const most = crop_to_patches ? max_patches : 1;
  let rows = Math.floor(Math.sqrt(most));
  while (most % rows !== 0) rows--;
  return { width: (most / rows) * tile, height: rows * tile };
}
