/** How Idefics3 and SmolVLM cut a picture into tiles: sizes and counts only, as in their image processor. */
import { z } from "zod";

import type { ProcessorOptions } from "../../multimodal/multimodal-processor.ts";
import type { ImageSize } from "../../multimodal/processing-info.ts";
import {
  always,
  edge,
  filter,
  flag,
  parseProcessorOptions,
  scalingFields,
  scalingOf,
} from "../../multimodal/processor-options.ts";

/** Maximum edge of a picture, whatever its options say. */
const LARGEST_EDGE = 4096;

const longestEdge = z.strictObject({ longest_edge: edge }, 'an object such as {"longest_edge": 2048}');

const tileOptions = z.object({
  ...scalingFields,
  do_resize: always("this model always resizes pictures").default(true),
  size: longestEdge.default({ longest_edge: 4 * 364 }),
  resample: filter.default("lanczos"),
  do_image_splitting: flag.default(true),
  max_image_size: longestEdge.default({ longest_edge: 364 }),
  // Pads pictures of one batch to the same number of tiles. Here each picture is processed alone.
  do_pad: flag.default(true),
});

export interface TileOptions extends z.output<typeof tileOptions> {
  readonly scaling: ReturnType<typeof scalingOf>;
}

/** @throws EngineError like `parseProcessorOptions`. */
export function parseTileOptions(json: ProcessorOptions): TileOptions {
  const options = parseProcessorOptions(tileOptions, json);
  return { ...options, scaling: scalingOf(options) };
}

export interface TileGrid {
  /** The sizes to which a picture is resized in order before it is cut. */
  readonly sizes: readonly ImageSize[];
  /** Number of tiles; both 0 if the whole picture is the only tile. */
  readonly rows: number;
  readonly columns: number;
}

/** The whole picture, in the size of one tile, comes after its tiles. */
export function numTiles({ rows, columns }: TileGrid): number {
  return rows * columns + 1;
}

/** In double precision and with the truncations of transformers' `Idefics3ImageProcessor`. */
export function tileGrid(size: ImageSize, options: TileOptions): TileGrid {
  const tile = options.max_image_size.longest_edge;
  const resized = belowLargestEdge(toLongestEdge(size, options.size.longest_edge));
  if (!options.do_image_splitting) {
    return { sizes: [resized, { width: tile, height: tile }], rows: 0, columns: 0 };
  }
  const whole = toWholeTiles(resized, tile);
  const isCut = whole.width > tile || whole.height > tile;
  return {
    sizes: [resized, whole],
    rows: isCut ? whole.height / tile : 0,
    columns: isCut ? whole.width / tile : 0,
  };
}

/** The shorter edge becomes even. */
function toLongestEdge({ width, height }: ImageSize, edge: number): ImageSize {
  const aspectRatio = width / height;
  if (width >= height) return { width: edge, height: Math.max(toEven(Math.trunc(edge / aspectRatio)), 1) };
  return { width: Math.max(toEven(Math.trunc(edge * aspectRatio)), 1), height: edge };
}

function toEven(size: number): number {
  return size + (size % 2);
}

function belowLargestEdge({ width, height }: ImageSize): ImageSize {
  const aspectRatio = width / height;
  if (width >= height && width > LARGEST_EDGE) {
    return { width: LARGEST_EDGE, height: Math.max(Math.trunc(LARGEST_EDGE / aspectRatio), 1) };
  }
  if (height > width && height > LARGEST_EDGE) {
    return { width: Math.max(Math.trunc(LARGEST_EDGE * aspectRatio), 1), height: LARGEST_EDGE };
  }
  return { width, height };
}

function toWholeTiles({ width, height }: ImageSize, tile: number): ImageSize {
  const aspectRatio = width / height;
  const whole = (edge: number): number => Math.ceil(edge / tile) * tile;
  if (width >= height) return { width: whole(width), height: whole(Math.trunc(whole(width) / aspectRatio)) };
  return { width: whole(Math.trunc(whole(height) * aspectRatio)), height: whole(height) };
}
