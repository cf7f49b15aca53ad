/** How Granite-Docling cuts a page into tiles: sizes and counts only, as in transformers' GraniteDoclingImageProcessor. */
import { z } from "zod";

import type { ProcessorOptions } from "../../multimodal/multimodal-processor.ts";
import type { ImageSize } from "../../multimodal/processing-info.ts";
import { flag, integer, invalidOption, parseProcessorOptions } from "../../multimodal/processor-options.ts";
import { checkedTiles, internTileFields, numInternTiles } from "../internvl/tiles.ts";
import { closestGrid, grids } from "../tiles/closest-grid.ts";
import type { TileGridSize } from "../tiles/tile-values.ts";
import { FINE_FACTOR } from "./config.ts";

/** The tokenizer has texts for so many places of tiles. */
const MOST_PER_SIDE = 16;

/** Longest side of a picture, in pixels; see `edge`. */
const LONGEST_SIDE = 16_384;

const ratioRange = "a number from 0 to 16384";
const ratio = z.number(ratioRange).min(0, ratioRange).max(16_384, ratioRange).default(0);

const pageOptions = z.object({
  ...internTileFields,
  size: internTileFields.size.unwrap().default({ height: 512, width: 512 }),
  crop_to_patches: flag.default(true),
  max_patches: internTileFields.max_patches.unwrap().default(32),
  fine_route: flag.default(false),
  dense_max_patches: integer(0, MOST_PER_SIDE ** 2).default(0),
  dense_max_scale: ratio,
  dense_min_aspect: ratio,
  dense_max_aspect: ratio,
});

export type PageOptions = ReturnType<typeof checkedTiles<z.output<typeof pageOptions>>>;

/** @throws EngineError like `parseProcessorOptions`. */
export function parsePageOptions(json: ProcessorOptions): PageOptions {
  const options = checkedTiles(parseProcessorOptions(pageOptions, json));
  const { dense_max_patches: most, min_patches: fewest } = options;
  if (most !== 0 && most < fewest) {
    throw invalidOption("dense_max_patches", `is ${most}; expected 0, or at least min_patches, ${fewest}`);
  }
  return options;
}

/** The tiles of a page. A page of more than one is also shown as a whole, in one more. */
export function pageGrid(size: ImageSize, options: PageOptions): TileGridSize {
  const most = mostTiles(size, options);
  return most === 1 ? { rows: 1, columns: 1 } : gridOf(size, options, most);
}

/** Embeddings of a page, of which a tile has `numImageTokens` on the coarse path. */
export function numPageEmbeddings(size: ImageSize, options: PageOptions, numImageTokens: number): number {
  return numInternTiles(pageGrid(size, options)) * tileEmbeddings(options, numImageTokens);
}

/** Embeddings of a tile. */
export function tileEmbeddings({ fine_route: isFine }: PageOptions, numImageTokens: number): number {
  return isFine ? FINE_FACTOR * numImageTokens : numImageTokens;
}

/** A page with the most tiles. */
export function largestPage(options: PageOptions): ImageSize {
  const { min_patches: fewest, max_patches, dense_max_patches, tile } = options;
  let largest: ImageSize = { width: tile, height: tile };
  let numTiles = 0;
  for (const grid of grids({ fewest, most: Math.max(max_patches, dense_max_patches), mostPerSide: MOST_PER_SIDE })) {
    for (const size of pagesOf(grid, options)) {
      const found = numInternTiles(pageGrid(size, options));
      if (found <= numTiles) continue;
      largest = size;
      numTiles = found;
    }
  }
  return largest;
}

/**
 * Pages whose shape is the grid's, or where the rule for dense pages excludes it the closest that it takes, in several
 * sizes, since the rule may need a large one.
 */
function* pagesOf({ rows, columns }: TileGridSize, options: PageOptions): Generator<ImageSize> {
  const { tile, dense_min_aspect: least, dense_max_aspect: most } = options;
  const aspect = columns / rows;
  yield { width: columns * tile, height: rows * tile };
  const within = most > 0 ? Math.min(Math.max(aspect, least), most) : Math.max(aspect, least);
  for (let height = rows * tile; height <= LONGEST_SIDE; height *= 2) {
    // The rule takes shapes above its least aspect only.
    const width = within === least ? Math.floor(height * within) + 1 : Math.floor(height * within);
    if (width >= 1 && width <= LONGEST_SIDE) yield { width, height };
  }
}

function gridOf(size: ImageSize, { min_patches: fewest, tile }: PageOptions, most: number): TileGridSize {
  return closestGrid(size, { fewest, most, tile, mostPerSide: MOST_PER_SIDE });
}

/** More tiles for pages that `max_patches` tiles would show too small, if their shape is within bounds. */
function mostTiles(size: ImageSize, options: PageOptions): number {
  const { crop_to_patches, max_patches, tile } = options;
  if (!crop_to_patches || max_patches === 1) return 1;
  const {
    dense_max_patches: densest,
    dense_max_scale: scale,
    dense_min_aspect: least,
    dense_max_aspect: most,
  } = options;
  if (densest === 0 || (scale === 0 && least === 0)) return max_patches;
  const aspect = size.width / size.height;
  if ((least > 0 && aspect <= least) || (most > 0 && aspect > most)) return max_patches;
  if (scale > 0 && (gridOf(size, options, max_patches).columns * tile) / size.width >= scale) return max_patches;
  return densest;
}
