/** Pixtral's preprocessor_config.json, and the grid of squares that it makes from a picture. */
import { z } from "zod";

import type { ProcessorOptions } from "../../multimodal/multimodal-processor.ts";
import type { ImageSize } from "../../multimodal/processing-info.ts";
import {
  always,
  edge,
  filter,
  flag,
  integer,
  parseProcessorOptions,
  scalingFields,
  scalingOf,
  scalingShape,
} from "../../multimodal/processor-options.ts";

const clipMean: [number, number, number] = [0.48145466, 0.4578275, 0.40821073];
const clipStd: [number, number, number] = [0.26862954, 0.26130258, 0.27577711];

const expectedSize = 'an object such as {"longest_edge": 1024} or {"height": 1024, "width": 1024}';
const side = integer(1, 1024);

const imageOptions = z.object({
  ...scalingFields,
  image_mean: scalingShape.image_mean.default(clipMean),
  image_std: scalingShape.image_std.default(clipStd),
  do_resize: always("this model always resizes pictures to whole patches").default(true),
  resample: filter.default("bicubic"),
  /** A picture that is larger in either direction is scaled down until it fits. */
  size: z
    .union([z.strictObject({ longest_edge: edge }), z.strictObject({ height: edge, width: edge })], expectedSize)
    .default({ longest_edge: 1024 })
    .transform((size) =>
      "longest_edge" in size
        ? { height: size.longest_edge, width: size.longest_edge }
        : { height: size.height, width: size.width },
    ),
  /** Side of a patch. The encoder's own size is checked where both are known. */
  patch_size: z
    .union(
      [side, z.object({ height: side, width: side })],
      'an integer or an object such as {"height": 16, "width": 16}',
    )
    .optional(),
  /** Side of a square in patches; processor_config.json has it, and here it is the encoder's. */
  spatial_merge_size: side.default(1),
  // Only pictures of a batch are padded, and the encoder computes them one by one.
  do_pad: flag.default(true),
  default_to_square: flag.default(true),
});

export interface PixtralImageOptions extends Omit<z.output<typeof imageOptions>, "patch_size"> {
  readonly patchSize: ImageSize;
  readonly scaling: ReturnType<typeof scalingOf>;
}

const DEFAULT_PATCH = 16;

/** @throws EngineError like `parseProcessorOptions`. */
export function parsePixtralImageOptions(json: ProcessorOptions): PixtralImageOptions {
  const { patch_size: patch = DEFAULT_PATCH, ...options } = parseProcessorOptions(imageOptions, json);
  const patchSize = typeof patch === "number" ? { width: patch, height: patch } : patch;
  return { ...options, patchSize, scaling: scalingOf(options) };
}

/** A picture divided into squares, each of which becomes one embedding. */
export interface SquareGrid {
  readonly rows: number;
  readonly columns: number;
}

/**
 * The squares that cover the picture, after it is scaled down to fit. (transformers fails if scaling leaves no pixel;
 * here one is left.)
 */
export function pixtralGrid({ width, height }: ImageSize, options: PixtralImageOptions): SquareGrid {
  const { size, patchSize, spatial_merge_size: mergeSize } = options;
  const ratio = Math.max(height / size.height, width / size.width, 1);
  const squares = (length: number, patch: number): number =>
    Math.ceil(Math.max(Math.floor(length / ratio), 1) / (patch * mergeSize));
  return { rows: squares(height, patchSize.height), columns: squares(width, patchSize.width) };
}
