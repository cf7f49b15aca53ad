/** Pixtral's preprocessor_config.json, and the grid of patches that it makes from a picture. */
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
  parseProcessorOptions,
  scalingOf,
} from "../../multimodal/processor-options.ts";

const expectedSize = 'an object such as {"longest_edge": 1024} or {"height": 1024, "width": 1024}';
const side = integer(1, 1024);

const imageOptions = z.object({
  ...clipScalingFields,
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
  /** Side of a patch, in pixels. Files also have it as an object, which does not count: see `encoderOptions`. */
  patch_size: z
    .union(
      [side, z.object({ height: side, width: side })],
      'an integer or an object such as {"height": 16, "width": 16}',
    )
    .transform((patch) => (typeof patch === "number" ? patch : patch.height))
    .default(16),
  /** Side of a square, in patches. */
  spatial_merge_size: side.default(1),
  /** Whether sides are rounded up to whole squares or to whole patches; set by the model, not by files. */
  rounds_to: z.enum(["squares", "patches"]).default("squares"),
  // Only pictures of a batch are padded, and the encoder computes them one by one.
  do_pad: flag.default(true),
  default_to_square: flag.default(true),
});

export interface PixtralImageOptions extends z.output<typeof imageOptions> {
  readonly scaling: ReturnType<typeof scalingOf>;
}

/** @throws EngineError like `parseProcessorOptions`. */
export function parsePixtralImageOptions(json: ProcessorOptions): PixtralImageOptions {
  const options = parseProcessorOptions(imageOptions, json);
  return { ...options, scaling: scalingOf(options) };
}

export interface Grid {
  readonly rows: number;
  readonly columns: number;
}

/**
 * The patches that cover the picture, after it is scaled down to fit; at least one square of them. (transformers fails
 * if scaling leaves no pixel or no square.)
 */
export function patchGrid({ width, height }: ImageSize, options: PixtralImageOptions): Grid {
  const { size, patch_size: patchSize, spatial_merge_size: mergeSize } = options;
  const step = options.rounds_to === "squares" ? mergeSize : 1;
  const ratio = Math.max(height / size.height, width / size.width, 1);
  const patches = (length: number): number =>
    Math.max(Math.ceil(Math.max(Math.floor(length / ratio), 1) / (patchSize * step)) * step, mergeSize);
  return { rows: patches(height), columns: patches(width) };
}

/** The whole squares of patches, each of which becomes one embedding. */
export function squareGrid(picture: ImageSize, options: PixtralImageOptions): Grid {
  const { rows, columns } = patchGrid(picture, options);
  const squares = (patches: number): number => Math.floor(patches / options.spatial_merge_size);
  return { rows: squares(rows), columns: squares(columns) };
}
