/** Options of MiniCPM-V's image processor. */
import { z } from "zod";

import type { ProcessorOptions } from "../../multimodal/multimodal-processor.ts";
import type { PixelTools } from "../../multimodal/pixel-program.ts";
import {
  always,
  filter,
  flag,
  integer,
  invalidOption,
  parseProcessorOptions,
  scalingFields,
  scalingOf,
  unsupportedOption,
} from "../../multimodal/processor-options.ts";

/** Slices of one picture; files of the hub have 9. */
const MAX_SLICES = 144;
/** Pixels of all slices: decoders do not accept larger pictures. */
const MAX_PIXELS = 2 ** 28;

const downsampleMode = z.literal(["16x", "4x"], '"16x" or "4x"');

const imageOptions = z.object({
  ...scalingFields,
  do_resize: always("this model always resizes pictures to whole squares of patches").default(true),
  resample: filter.default("bicubic"),
  max_slice_nums: integer(1, MAX_SLICES).default(9),
  scale_resolution: integer(1, 4096).default(448),
  patch_size: integer(1, 1024).default(14),
  slice_mode: flag.default(true),
  use_image_id: flag.default(true),
  downsample_mode: downsampleMode.optional(),
  /** An option of MiniCPM-OCR. */
  small_image_upsize: z.literal(["always", "never", "adaptive"], '"always" or "never"').default("always"),
  /** From config.json, see `miniCpmVVisionEncoder`. */
  model_patch_size: integer(1, 1024),
  model_downsample_mode: downsampleMode,
  positions_per_side: integer(1, 16_384),
  marker_ids: z.array(z.int()).default([]),
});

export interface SliceOptions {
  /** The most slices that a picture is cut into; 1: none is cut. */
  readonly mostSlices: number;
  /** A picture that is not cut, and each slice, has about as many pixels as a square of this side. */
  readonly resolution: number;
  /** Whether a picture with fewer pixels than that is enlarged. Slices always are. */
  readonly enlargesPictures: boolean;
  /** Side of a patch, in pixels. */
  readonly patchSize: number;
  /** Side of the squares of patches that become one embedding. */
  readonly mergeSize: number;
}

export interface MiniCpmVImageOptions extends SliceOptions {
  /** Whether a prompt numbers its pictures. */
  readonly numbersPictures: boolean;
  /** Rows, and columns, of the tower's table of positions. */
  readonly positionsPerSide: number;
  /** Tokens that belong to a picture if they follow it; empty if tokens have plain positions. */
  readonly markerIds: readonly number[];
  readonly filter: Parameters<PixelTools["resample"]>[1]["filter"];
  readonly scaling: ReturnType<typeof scalingOf>;
}

/** @throws EngineError like `parseProcessorOptions`. */
export function parseMiniCpmVImageOptions(json: ProcessorOptions): MiniCpmVImageOptions {
  const options = parseProcessorOptions(imageOptions, {
    ...json,
    patch_size: json.patch_size ?? json.model_patch_size,
  });
  const { model_patch_size: patchSize, model_downsample_mode: mode, scale_resolution: resolution } = options;
  const mostSlices = options.slice_mode ? options.max_slice_nums : 1;
  if (options.patch_size !== patchSize) {
    throw invalidOption(
      "patch_size",
      `is ${options.patch_size}; the vision encoder's patches have ${patchSize} pixels`,
    );
  }
  if ((options.downsample_mode ?? mode) !== mode) {
    throw invalidOption("downsample_mode", `is ${options.downsample_mode}; that of config.json is ${mode}`);
  }
  if (options.small_image_upsize === "adaptive") {
    const problem = 'is "adaptive": sizes that depend on the letters in a picture are not supported';
    throw unsupportedOption("small_image_upsize", `${problem}; supported are "always" and "never"`);
  }
  if (mostSlices * resolution ** 2 > MAX_PIXELS) {
    throw invalidOption(
      "scale_resolution",
      `is ${resolution}; with max_slice_nums ${mostSlices} a picture has more than ${MAX_PIXELS} pixels`,
    );
  }
  return {
    mostSlices,
    resolution,
    enlargesPictures: options.small_image_upsize === "always",
    patchSize,
    mergeSize: mode === "16x" ? 4 : 2,
    numbersPictures: options.use_image_id,
    positionsPerSide: options.positions_per_side,
    markerIds: options.marker_ids,
    filter: options.resample,
    scaling: scalingOf(options),
  };
}
