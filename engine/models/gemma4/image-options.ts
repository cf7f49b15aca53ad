/** Options of Gemma 4's image processor, and the grid of squares that it makes from a picture. */
import { z } from "zod";

import type { ProcessorOptions } from "../../multimodal/multimodal-processor.ts";
import type { ImageSize } from "../../multimodal/processing-info.ts";
import {
  always,
  filter,
  integer,
  invalidOption,
  parseProcessorOptions,
  scalingFields,
  scalingOf,
  scalingShape,
} from "../../multimodal/processor-options.ts";
import type { SquareGrid } from "../patches/square-grid.ts";

/** As in transformers. */
const mostEmbeddings = [70, 140, 280, 560, 1120] as const;
const side = integer(1, 1024);

const imageOptions = z.object({
  ...scalingFields,
  do_normalize: scalingShape.do_normalize.default(false),
  image_mean: scalingShape.image_mean.default([0, 0, 0]),
  image_std: scalingShape.image_std.default([1, 1, 1]),
  do_resize: always("this model always resizes pictures to whole squares of patches").default(true),
  resample: filter.default("bicubic"),
  max_soft_tokens: z
    .literal(mostEmbeddings, `one of ${mostEmbeddings.join(", ")}: the most embeddings of a picture`)
    .default(280),
  patch_size: side.default(16),
  pooling_kernel_size: side.default(3),
  /** The side of a square in pixels, which follows from both. */
  model_patch_size: side.optional(),
  /** In files of the hub, but the number of embeddings determines the size. */
  size: z.unknown().optional(),
  /** From config.json: rows, and columns, of patches whose positions the tower knows. */
  position_embedding_size: integer(1, 2 ** 27).optional(),
});

export interface Gemma4ImageOptions extends z.output<typeof imageOptions> {
  /** Side of a square of patches that becomes one embedding, in pixels. */
  readonly squareSize: number;
  readonly scaling: ReturnType<typeof scalingOf>;
}

/** @throws EngineError like `parseProcessorOptions`. */
export function parseGemma4ImageOptions(json: ProcessorOptions): Gemma4ImageOptions {
  const options = parseProcessorOptions(imageOptions, json);
  const { max_soft_tokens: most, pooling_kernel_size: poolingSize, position_embedding_size: numPositions } = options;
  if (numPositions !== undefined && most * poolingSize > numPositions) {
    throw invalidOption(
      "max_soft_tokens",
      `is ${most}; a picture can then have ${most * poolingSize} patches in a row, and the model has positions for ${numPositions}`,
    );
  }
  const squareSize = options.patch_size * poolingSize;
  const { model_patch_size: givenSize = squareSize } = options;
  if (givenSize !== squareSize) {
    throw invalidOption(
      "model_patch_size",
      `is ${givenSize}; squares of ${poolingSize} patches of ${options.patch_size} pixels have ${squareSize}`,
    );
  }
  return { ...options, squareSize, scaling: scalingOf(options) };
}

/** The largest grid with the shape of the picture: transformers' `get_aspect_ratio_preserving_size`. */
export function gemma4Grid({ width, height }: ImageSize, options: Gemma4ImageOptions): SquareGrid {
  const { max_soft_tokens: most, squareSize } = options;
  const factor = Math.sqrt((most * squareSize ** 2) / (height * width));
  const rows = Math.floor((factor * height) / squareSize);
  const columns = Math.floor((factor * width) / squareSize);
  if (rows === 0) return { rows: 1, columns: Math.min(Math.floor(width / height), most) };
  if (columns === 0) return { rows: Math.min(Math.floor(height / width), most), columns: 1 };
  return { rows, columns };
}

/** A picture that has as many embeddings as any other. */
export function largestImageSize(options: Gemma4ImageOptions): ImageSize {
  const { max_soft_tokens: most, squareSize } = options;
  for (let numRows = Math.floor(Math.sqrt(most)); numRows > 1; numRows--) {
    const size = { width: (most / numRows) * squareSize, height: numRows * squareSize };
    if (most % numRows !== 0) continue;
    const { rows, columns } = gemma4Grid(size, options);
    if (rows * columns === most) return size;
  }
  // Too elongated for a second row.
  return { width: most + 1, height: 1 };
}
