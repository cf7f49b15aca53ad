/** Fuyu's preprocessor_config.json, and the grid of patches that it makes from a picture. */
import { z } from "zod";

import { EngineError } from "../../contract/errors.ts";
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
  scalingOptions,
  unsupportedOption,
} from "../../multimodal/processor-options.ts";

const size = z.object({ height: edge, width: edge }, 'an object such as {"height": 1080, "width": 1920}');
const byte = "a number from 0 to 255";

const imageOptions = z.object({
  ...scalingFields,
  /** A picture that is larger in either direction is scaled down until it fits. */
  size: size.default({ height: 1080, width: 1920 }),
  patch_size: size.default({ height: 30, width: 30 }),
  resample: filter.default("bilinear"),
  do_resize: flag.default(true),
  do_pad: always("this model always pads pictures to whole patches").default(true),
  padding_mode: z.literal("constant", '"constant"').default("constant"),
  /** Padding of the last patches of rows and columns, as a byte. */
  padding_value: z.number(byte).min(0, byte).max(255, byte).default(1).transform(Math.trunc),
});

export interface FuyuImageOptions extends z.output<typeof imageOptions> {
  readonly scaling: ReturnType<typeof scalingOf>;
}

/** Options above that a request may set without changing the model. */
export const fuyuRequestOptions: ReadonlySet<string> = new Set([
  "size",
  "resample",
  "do_resize",
  "padding_value",
  ...scalingOptions,
]);

/** @throws EngineError like `parseProcessorOptions`, and `unsupported_model` for sizes without whole patches. */
export function parseFuyuImageOptions(json: ProcessorOptions): FuyuImageOptions {
  const options = parseProcessorOptions(imageOptions, json);
  const { size: largest, patch_size: patch } = options;
  if (patch.height !== patch.width) {
    throw unsupportedOption("patch_size", `is ${patch.width}x${patch.height}; expected a square`);
  }
  if (largest.height % patch.height !== 0 || largest.width % patch.width !== 0) {
    throw unsupportedOption(
      "size",
      `is ${largest.width}x${largest.height}; expected multiples of ${patch.width}, the side of a patch`,
    );
  }
  return { ...options, scaling: scalingOf(options) };
}

/**
 * The size to which a picture is resized: its own if it fits, otherwise scaled by one factor, rounded down.
 * (transformers fails if that leaves no pixel; here one is left.) Throws EngineError `image_too_large` if scaling is
 * off and it does not fit.
 */
export function fuyuResizedSize({ width, height }: ImageSize, options: FuyuImageOptions): ImageSize {
  const { size: largest, do_resize: isResized } = options;
  if (width <= largest.width && height <= largest.height) return { width, height };
  if (!isResized) {
    throw new EngineError(
      "image_too_large",
      `The image has ${width}x${height} pixels; without scaling, the model accepts at most ${largest.width}x${largest.height}.`,
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
