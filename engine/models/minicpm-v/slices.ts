/** How MiniCPM-V shows a picture: whole, and if it is large also in slices. Sizes and counts only. */
import type { ImageSize } from "../../multimodal/processing-info.ts";
import { roundHalfToEven } from "../../round-half-to-even.ts";
import { MOST_ELONGATED, refuseElongated } from "../elongation.ts";
import type { TileGridSize } from "../tiles/tile-values.ts";
import type { SliceOptions } from "./image-options.ts";

export interface SliceLayout {
  /** Size to which the whole picture is resized. */
  readonly whole: ImageSize;
  /** Slices of one size, which are cut from the picture after it is resized to all of them; null if it is not cut. */
  readonly slices: (TileGridSize & { readonly size: ImageSize }) | null;
}

/**
 * In double precision and with the roundings of transformers' `MiniCPMV4_6ImageProcessor`. Throws EngineError
 * `invalid_image` for a picture that is too elongated.
 */
export function sliceLayout(picture: ImageSize, options: SliceOptions): SliceLayout {
  refuseElongated(picture);
  const grid = sliceGrid(picture, options);
  const { resolution, enlargesPictures } = options;
  const isScaled = enlargesPictures || picture.width * picture.height > resolution * resolution;
  const whole = isScaled ? cropSize(picture, options) : wholeSquares(picture, options);
  if (grid === null) return { whole, slices: null };
  const ofOne = (length: number, parts: number): number => multipleOf(length, parts) / parts;
  const size = cropSize(
    { width: ofOne(picture.width, grid.columns), height: ofOne(picture.height, grid.rows) },
    options,
  );
  return { whole, slices: { ...grid, size } };
}

/** Embeddings of the whole picture, and of each slice. */
export function numCropEmbeddings(
  { whole, slices }: SliceLayout,
  { patchSize, mergeSize }: SliceOptions,
): { readonly ofWhole: number; readonly ofSlice: number; readonly total: number } {
  const squares = ({ width, height }: ImageSize): number => (width * height) / (patchSize * mergeSize) ** 2;
  const ofWhole = squares(whole);
  const ofSlice = slices === null ? 0 : squares(slices.size);
  return { ofWhole, ofSlice, total: ofWhole + (slices === null ? 0 : slices.rows * slices.columns * ofSlice) };
}

/** The grid whose shape is closest to the picture's, of about as many slices as the picture has resolutions. */
function sliceGrid({ width, height }: ImageSize, { mostSlices, resolution }: SliceOptions): TileGridSize | null {
  const wanted = Math.min(Math.ceil((width * height) / (resolution * resolution)), mostSlices);
  if (wanted <= 1) return null;
  const elongation = Math.log(width / height);
  let best: TileGridSize = { rows: 1, columns: 1 };
  let smallestError = Number.POSITIVE_INFINITY;
  for (const numSlices of [wanted - 1, wanted, wanted + 1]) {
    if (numSlices === 1 || numSlices > mostSlices) continue;
    for (let rows = 1; rows <= numSlices; rows++) {
      if (numSlices % rows !== 0) continue;
      const columns = numSlices / rows;
      const error = Math.abs(elongation - Math.log(columns / rows));
      if (error > smallestError || (error === smallestError && rows <= best.rows)) continue;
      best = { rows, columns };
      smallestError = error;
    }
  }
  return best;
}

/** The shape of a picture or slice with about as many pixels as the resolution's square. */
function cropSize(crop: ImageSize, options: SliceOptions): ImageSize {
  const shape = crop.width / crop.height;
  const height = Math.trunc(options.resolution / Math.sqrt(shape));
  return wholeSquares({ width: Math.trunc(height * shape), height }, options);
}

/** The closest size in whole squares of patches. */
function wholeSquares({ width, height }: ImageSize, { patchSize, mergeSize }: SliceOptions): ImageSize {
  const squareSize = patchSize * mergeSize;
  return { width: multipleOf(width, squareSize), height: multipleOf(height, squareSize) };
}

/** The closest multiple, and at least the divisor. */
function multipleOf(length: number, divisor: number): number {
  return Math.max(roundHalfToEven(length / divisor) * divisor, divisor);
}

/** Shapes from square to the most elongated, in each direction. */
const TRIED_SHAPES = 2048;

/** A picture that has as many embeddings as any other. */
export function largestImageSize(options: SliceOptions): ImageSize {
  return largestOf(candidatesForMost(options), (size) => numCropEmbeddings(sliceLayout(size, options), options).total);
}

/** The size to which a picture is resized, of the picture whose whole has as many embeddings as any other's. */
export function largestWholeSize(options: SliceOptions): ImageSize {
  const sizes = Array.from(largestWholes(options), (size) => cropSize(size, options));
  return largestOf(sizes, ({ width, height }) => width * height);
}

function largestOf(sizes: Iterable<ImageSize>, measure: (size: ImageSize) => number): ImageSize {
  let best: ImageSize = { width: 1, height: 1 };
  let most = 0;
  for (const size of sizes) {
    const measured = measure(size);
    if (measured <= most) continue;
    most = measured;
    best = size;
  }
  return best;
}

/**
 * The number of embeddings of a large picture depends on its shape only: sides of whole and slices are rounded to
 * squares. Tried are pictures with as many slices as there can be, in all shapes.
 */
function* candidatesForMost(options: SliceOptions): Iterable<ImageSize> {
  const { mostSlices, resolution } = options;
  if (mostSlices === 1) return yield* largestWholes(options);
  const side = Math.sqrt(mostSlices) * resolution;
  for (let step = 0; step <= TRIED_SHAPES; step++) {
    const elongation = MOST_ELONGATED ** (step / TRIED_SHAPES);
    const short = Math.ceil(side / Math.sqrt(elongation));
    const long = Math.floor(short * elongation);
    yield { width: long, height: short };
    yield { width: short, height: long };
  }
}

/** Pictures that have, for each height to which they are scaled, the largest width; and the most elongated ones. */
function* largestWholes({ resolution }: SliceOptions): Iterable<ImageSize> {
  yield { width: MOST_ELONGATED, height: 1 };
  yield { width: 1, height: MOST_ELONGATED };
  const most = resolution * Math.sqrt(MOST_ELONGATED);
  for (let height = 1; height <= most; height++) {
    const width = Math.floor(resolution ** 2 / height);
    if (Math.max(width, height) <= MOST_ELONGATED * Math.min(width, height)) yield { width, height };
  }
}
