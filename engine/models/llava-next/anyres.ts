/**
 * How LLaVA-NeXT and LLaVA-OneVision show a picture of any resolution: in tiles of the listed resolution that suits it
 * best, without the embeddings of the border. Sizes, counts and places only.
 */
import type { ImageSize } from "../../multimodal/processing-info.ts";
import type { AnyresOptions, Resolution } from "./image-options.ts";

/** Rows and columns of tiles or of embeddings. */
export interface Grid {
  readonly rows: number;
  readonly columns: number;
}

export interface AnyresLayout {
  /** Size of all tiles together, in pixels. */
  readonly canvas: ImageSize;
  /** Size of the picture on the canvas, of which it is in the middle. */
  readonly picture: ImageSize;
  readonly tiles: Grid;
  /** The embeddings of the tiles without those of the border. */
  readonly window: Grid & { readonly top: number; readonly left: number };
  /** The size to which the window is scaled; the window's own if it is not scaled. */
  readonly scaled: Grid;
}

/** A larger picture than this, in tiles of `mostTiles`, is scaled down. */
const MAX_OVERSIZE = 1.1;

/** In double precision and with the truncations of transformers. */
export function anyresLayout(size: ImageSize, options: AnyresOptions): AnyresLayout {
  const { tile, featuresPerSide: side } = options;
  const [height, width] = bestResolution(size, options.resolutions);
  const tiles = { rows: height / tile, columns: width / tile };
  const window = withoutBorder(size, { rows: tiles.rows * side, columns: tiles.columns * side });
  return {
    canvas: { width, height },
    picture: fittedSize(size, { width, height }),
    tiles,
    window,
    scaled: scaledWindow(window, options),
  };
}

/** Embeddings of the whole picture in one tile, then those of the window, with one more at the end of each row. */
export function numAnyresEmbeddings({ scaled }: AnyresLayout, { featuresPerSide }: AnyresOptions): number {
  return featuresPerSide ** 2 + scaled.rows * (scaled.columns + 1);
}

/** transformers' `select_best_resolution`: the most pixels of the picture, then the smallest border. */
function bestResolution({ width, height }: ImageSize, resolutions: readonly Resolution[]): Resolution {
  let best = resolutions[0]!;
  let mostPixels = 0;
  let leastWaste = Number.POSITIVE_INFINITY;
  for (const resolution of resolutions) {
    const [tall, wide] = resolution;
    const scale = Math.min(wide / width, tall / height);
    const numPixels = Math.min(Math.trunc(width * scale) * Math.trunc(height * scale), width * height);
    const waste = wide * tall - numPixels;
    if (numPixels > mostPixels || (numPixels === mostPixels && waste < leastWaste)) {
      best = resolution;
      mostPixels = numPixels;
      leastWaste = waste;
    }
  }
  return best;
}

/** transformers' `get_patch_output_size`. */
function fittedSize({ width, height }: ImageSize, canvas: ImageSize): ImageSize {
  const scaleWidth = canvas.width / width;
  const scaleHeight = canvas.height / height;
  if (scaleWidth < scaleHeight) {
    return { width: canvas.width, height: Math.min(Math.ceil(height * scaleWidth), canvas.height) };
  }
  return { width: Math.min(Math.ceil(width * scaleHeight), canvas.width), height: canvas.height };
}

/** transformers' `unpad_image`. A very elongated picture may have no rows or columns left. */
function withoutBorder({ width, height }: ImageSize, { rows, columns }: Grid): AnyresLayout["window"] {
  if (width / height > columns / rows) {
    const kept = truncated(height * (columns / width));
    const top = Math.floor((rows - kept) / 2);
    return { top, left: 0, rows: rows - 2 * top, columns };
  }
  const kept = truncated(width * (rows / height));
  const left = Math.floor((columns - kept) / 2);
  return { top: 0, left, rows, columns: columns - 2 * left };
}

/** Python's `int(round(value, 7))`. */
function truncated(value: number): number {
  return Math.trunc(Number(value.toFixed(7)));
}

function scaledWindow({ rows, columns }: Grid, { mostTiles, featuresPerSide }: AnyresOptions): Grid {
  if (mostTiles === null) return { rows, columns };
  const ratio = Math.sqrt((rows * columns) / (mostTiles * featuresPerSide ** 2));
  if (ratio <= MAX_OVERSIZE) return { rows, columns };
  return { rows: Math.floor(rows / ratio), columns: Math.floor(columns / ratio) };
}

/** A picture that has as many embeddings as any other. */
export function largestAnyresSize(options: AnyresOptions): ImageSize {
  let best: ImageSize = { width: 1, height: 1 };
  let most = 0;
  for (const size of candidatesForMost(options)) {
    const numEmbeddings = numAnyresEmbeddings(anyresLayout(size, options), options);
    if (numEmbeddings <= most) continue;
    most = numEmbeddings;
    best = size;
  }
  return best;
}

/**
 * Pictures of the size of a resolution have no border, and so the most embeddings unless they are scaled. If they are,
 * pictures with a border that are just not scaled may have more: those that fill a resolution in one direction, for each
 * number of rows or columns that can be left.
 */
function* candidatesForMost({ resolutions, tile, featuresPerSide, mostTiles }: AnyresOptions): Iterable<ImageSize> {
  const pixelsPerFeature = tile / featuresPerSide;
  for (const [height, width] of resolutions) {
    yield { width, height };
    if (mostTiles === null) continue;
    for (let length = pixelsPerFeature; length < height; length += pixelsPerFeature) {
      yield { width, height: Math.ceil(length) };
    }
    for (let length = pixelsPerFeature; length < width; length += pixelsPerFeature) {
      yield { width: Math.ceil(length), height };
    }
  }
}
