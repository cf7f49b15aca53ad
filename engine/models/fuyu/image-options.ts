/** Fuyu's preprocessor_config.json, and the grid of patches that a picture becomes under it. */
import { z } from "zod";
import { EngineError } from "../../contract/errors.ts";
import type { ProcessorOptions } from "../../multimodal/multimodal-processor.ts";
import type { ImageSize } from "../../multimodal/processing-info.ts";
import { filter, parseProcessorOptions, scalingFields, scalingOptions } from "../processor-options.ts";

/** Pillow's number of the bilinear filter. */
const bilinear = 2;

const edge = z.int().min(1).max(16_384);
const size = z.object({ height: edge, width: edge });

const imageOptions = z.object({
  ...scalingFields,
  /** A picture that is larger in any direction is made smaller until it fits. */
  size: size.default({ height: 1080, width: 1920 }),
  patch_size: size.default({ height: 30, width: 30 }),
  resample: filter.default(filter.parse(bilinear)),
  do_resize: z.boolean().default(true),
  do_pad: z.literal(true).default(true),
  padding_mode: z.literal("constant").default("constant"),
  /** What the last patches of a row and of a column are filled up with, as a byte. */
  padding_value: z.number().min(0).max(255).default(1).transform(Math.trunc),
});

export type FuyuImageOptions = z.output<typeof imageOptions>;

/** Those of the options above that a request may set without changing what the model is. */
export const fuyuRequestOptions: ReadonlySet<string> = new Set([
  "size",
  "resample",
  "do_resize",
  "padding_value",
  ...scalingOptions,
]);

/** @throws EngineError as `parseProcessorOptions`, and `unsupported_model` for sizes of no whole patches. */
export function parseFuyuImageOptions(json: ProcessorOptions): FuyuImageOptions {
  const options = parseProcessorOptions(imageOptions, json);
  const { size: largest, patch_size: patch } = options;
  if (patch.height === patch.width && largest.height % patch.height === 0 && largest.width % patch.width === 0) {
    return options;
  }
  throw new EngineError(
    "unsupported_model",
    `preprocessor_config.json: a size of ${largest.width}x${largest.height} is not made of square patches of ${patch.width}x${patch.height}.`,
  );
}

/**
 * The size a picture is brought to: its own where it fits, otherwise scaled by one factor, rounded down. (transformers
 * fails where that leaves no pixel; here one is left.) Throws EngineError `image_too_large` where it is not to be
 * scaled and does not fit.
 */
export function fuyuResizedSize({ width, height }: ImageSize, options: FuyuImageOptions): ImageSize {
  const { size: largest, do_resize: isResized } = options;
  if (width <= largest.width && height <= largest.height) return { width, height };
  if (!isResized) {
    throw new EngineError(
      "image_too_large",
      `The image has ${width}x${height} pixels; the model takes ${largest.width}x${largest.height} without scaling.`,
    );
  }
  const factor = Math.min(largest.height / height, largest.width / width);
  return { width: Math.max(Math.trunc(width * factor), 1), height: Math.max(Math.trunc(height * factor), 1) };
}

export interface PatchGrid {
  readonly numColumns: number;
  readonly numRows: number;
}

export function fuyuPatchGrid(size: ImageSize, options: FuyuImageOptions): PatchGrid {
  const { width, height } = fuyuResizedSize(size, options);
  return {
    numColumns: Math.ceil(width / options.patch_size.width),
    numRows: Math.ceil(height / options.patch_size.height),
  };
}
