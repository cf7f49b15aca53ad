/** How DeepSeek-OCR shows a picture: as a whole, and a picture that is larger than a tile also cut into tiles. */
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
import { closestGrid } from "../tiles/closest-grid.ts";
import type { TileGridSize } from "../tiles/tile-values.ts";

const byte = integer(0, 255);
/** Twenty times the default of 6. */
const patchCount = integer(1, 128);

const imageOptions = z.object({
  ...scalingFields,
  do_resize: always("this model always resizes pictures").default(true),
  resample: filter.default("bicubic"),
  size: z.strictObject({ height: edge, width: edge }, 'an object such as {"height": 1024, "width": 1024}').optional(),
  tile_size: edge.optional(),
  crop_to_patches: always("this model is served with tiles").default(true),
  min_patches: patchCount.default(2),
  max_patches: patchCount.default(6),
  background_color: z.tuple([byte, byte, byte], "a list of three integers from 0 to 255").default([127, 127, 127]),
  /** From config.json, see `ocrImageOptions`. */
  model_tile_size: edge,
  model_size: edge,
  features_per_tile_side: integer(1, 1024),
  features_per_side: integer(1, 1024),
  ends_lines: flag,
});

/** The options that config.json determines. */
export interface OcrModelOptions {
  /** Side of a tile, in pixels. */
  readonly tile: number;
  /** Side of the square that shows the whole picture, in pixels. */
  readonly whole: number;
  /** Embeddings on each side of a tile. */
  readonly tileFeatures: number;
  /** Embeddings on each side of the whole picture. */
  readonly wholeFeatures: number;
  /** Whether a line of embeddings ends in one of its own, and lines go through all tiles side by side. */
  readonly endsLines: boolean;
}

export function ocrImageOptions(options: OcrModelOptions): ProcessorOptions {
  return {
    model_tile_size: options.tile,
    model_size: options.whole,
    features_per_tile_side: options.tileFeatures,
    features_per_side: options.wholeFeatures,
    ends_lines: options.endsLines,
  };
}

export interface OcrImageOptions extends OcrModelOptions {
  readonly min_patches: number;
  readonly max_patches: number;
  readonly filter: z.output<typeof imageOptions>["resample"];
  readonly background: readonly [number, number, number];
  readonly scaling: ReturnType<typeof scalingOf>;
}

/** @throws EngineError like `parseProcessorOptions`. */
export function parseOcrImageOptions(json: ProcessorOptions): OcrImageOptions {
  const options = parseProcessorOptions(imageOptions, json);
  const { size, tile_size, min_patches, max_patches, model_tile_size: tile, model_size: whole } = options;
  if (size !== undefined && (size.height !== whole || size.width !== whole)) {
    throw invalidOption("size", `is ${size.height}x${size.width}; this model's is ${whole}x${whole}`);
  }
  if (tile_size !== undefined && tile_size !== tile) {
    throw invalidOption("tile_size", `is ${tile_size}; this model's is ${tile}`);
  }
  if (max_patches < 2) throw invalidOption("max_patches", `is ${max_patches}; expected at least 2`);
  if (min_patches > max_patches) {
    throw invalidOption("min_patches", `is ${min_patches}; expected at most max_patches, ${max_patches}`);
  }
  return {
    tile,
    whole,
    tileFeatures: options.features_per_tile_side,
    wholeFeatures: options.features_per_side,
    endsLines: options.ends_lines,
    min_patches,
    max_patches,
    filter: options.resample,
    background: options.background_color,
    scaling: scalingOf(options),
  };
}

/** Null for a picture that is shown as a whole only. */
export function ocrGrid(size: ImageSize, options: OcrImageOptions): TileGridSize | null {
  if (Math.max(size.width, size.height) <= options.tile) return null;
  return closestGrid(size, { fewest: options.min_patches, most: options.max_patches, tile: options.tile });
}

/** Embeddings of the tiles, of the whole picture, and one behind both. */
export function numOcrEmbeddings(grid: TileGridSize | null, options: OcrModelOptions): number {
  const { tileFeatures: side, wholeFeatures, endsLines } = options;
  const lineEnd = endsLines ? 1 : 0;
  const { rows, columns } = grid ?? noTiles;
  return rows * side * (columns * side + lineEnd) + wholeFeatures * (wholeFeatures + lineEnd) + 1;
}

const noTiles: TileGridSize = { rows: 0, columns: 0 };

/**
 * int64 [numEmbeddings]: rows among the features of all tiles, tile after tile, then of the whole picture, the row that
 * ends a line if lines have ends, and the row behind everything.
 */
export function featureRows(grid: TileGridSize | null, options: OcrModelOptions): BigInt64Array<ArrayBuffer> {
  const { tileFeatures: side, wholeFeatures, endsLines } = options;
  const { rows, columns } = grid ?? noTiles;
  const firstOfWhole = rows * columns * side ** 2;
  const lineEnd = firstOfWhole + wholeFeatures ** 2;
  const found: number[] = [];
  const addLine = (length: number, rowAt: (place: number) => number): void => {
    for (let place = 0; place < length; place++) found.push(rowAt(place));
    if (endsLines) found.push(lineEnd);
  };
  if (endsLines) {
    for (let line = 0; line < rows * side; line++) {
      const firstTile = Math.floor(line / side) * columns;
      addLine(columns * side, (place) => {
        const tile = firstTile + Math.floor(place / side);
        return tile * side ** 2 + (line % side) * side + (place % side);
      });
    }
  } else {
    addLine(firstOfWhole, (place) => place);
  }
  for (let line = 0; line < wholeFeatures; line++) {
    addLine(wholeFeatures, (place) => firstOfWhole + line * wholeFeatures + place);
  }
  found.push(endsLines ? lineEnd + 1 : lineEnd);
  return BigInt64Array.from(found, BigInt);
}

/** A column of as many tiles as there may be, in which lines are shortest and have most ends. */
export function largestOcrSize({ tile, max_patches }: OcrImageOptions): ImageSize {
  return { width: tile, height: max_patches * tile };
}
