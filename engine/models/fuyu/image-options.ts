/** Fuyu's preprocessor_config.json, and the grid of patches that a picture becomes under it. */
import { z } from "zod";
import { EngineError } from "../../errors.ts";
import type { ImageSize } from "../../multimodal/processing-info.ts";

export type ResampleFilter = "nearest" | "lanczos" | "bilinear" | "bicubic" | "box" | "hamming";

export interface FuyuImageOptions {
  /** A picture that is larger in any direction is made smaller until it fits. */
  readonly largestSize: ImageSize;
  readonly patchSize: number;
  readonly filter: ResampleFilter;
  readonly isResized: boolean;
  /** What the last patches of a row and of a column are filled up with, as a byte. */
  readonly padding: number;
  readonly rescaleFactor: number | null;
  readonly normalize: { readonly mean: readonly number[]; readonly std: readonly number[] } | null;
}

/** By Pillow's number. */
const filters: readonly ResampleFilter[] = ["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"];

const edge = z.int().min(1).max(16_384);
const size = z.looseObject({ height: edge, width: edge });
const perChannel = z.union([
  z.number().transform((value) => [value, value, value]),
  z.tuple([z.number(), z.number(), z.number()]),
]);

const fields = z.looseObject({
  image_processor_type: z.string().nullish(),
  size: size.default({ height: 1080, width: 1920 }),
  patch_size: size.default({ height: 30, width: 30 }),
  resample: z
    .int()
    .min(0)
    .max(filters.length - 1)
    .default(2),
  do_resize: z.boolean().default(true),
  do_pad: z.literal(true).default(true),
  padding_mode: z.literal("constant").default("constant"),
  padding_value: z.number().min(0).max(255).default(1),
  do_rescale: z.boolean().default(true),
  rescale_factor: z.number().default(1 / 255),
  do_normalize: z.boolean().default(true),
  image_mean: perChannel.default([0.5, 0.5, 0.5]),
  image_std: perChannel.default([0.5, 0.5, 0.5]),
});

/** Of the fields above, those that a request may set without changing what the model is. */
export const fuyuRequestOptions: ReadonlySet<string> = new Set([
  "size",
  "resample",
  "do_resize",
  "padding_value",
  "do_rescale",
  "rescale_factor",
  "do_normalize",
  "image_mean",
  "image_std",
]);

/** Throws EngineError `invalid_checkpoint` for values of a wrong kind, `unsupported_model` for sizes of no whole patches. */
export function parseFuyuImageOptions(json: unknown): FuyuImageOptions {
  const parsed = fields.safeParse(json);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new EngineError("invalid_checkpoint", `preprocessor_config.json: ${issue.path.join(".")}: ${issue.message}.`);
  }
  const { size: largest, patch_size: patch, ...options } = parsed.data;
  if (patch.height !== patch.width || largest.height % patch.height !== 0 || largest.width % patch.width !== 0) {
    throw new EngineError(
      "unsupported_model",
      `preprocessor_config.json: a size of ${largest.width}x${largest.height} is not made of square patches of ${patch.width}x${patch.height}.`,
    );
  }
  return {
    largestSize: { width: largest.width, height: largest.height },
    patchSize: patch.height,
    filter: filters[options.resample],
    isResized: options.do_resize,
    padding: Math.trunc(options.padding_value),
    rescaleFactor: options.do_rescale ? options.rescale_factor : null,
    normalize: options.do_normalize ? { mean: options.image_mean, std: options.image_std } : null,
  };
}

/**
 * The size a picture is brought to: its own where it fits, otherwise scaled by one factor, rounded down. (transformers
 * fails where that leaves no pixel; here one is left.) Throws EngineError `image_too_large` where it is not to be
 * scaled and does not fit.
 */
export function fuyuResizedSize({ width, height }: ImageSize, { largestSize, isResized }: FuyuImageOptions): ImageSize {
  if (width <= largestSize.width && height <= largestSize.height) return { width, height };
  if (!isResized) {
    throw new EngineError(
      "image_too_large",
      `The image has ${width}x${height} pixels; the model takes ${largestSize.width}x${largestSize.height} without scaling.`,
    );
  }
  const factor = Math.min(largestSize.height / height, largestSize.width / width);
  return { width: Math.max(Math.trunc(width * factor), 1), height: Math.max(Math.trunc(height * factor), 1) };
}

export interface PatchGrid {
  readonly numColumns: number;
  readonly numRows: number;
}

export function fuyuPatchGrid(size: ImageSize, options: FuyuImageOptions): PatchGrid {
  const { width, height } = fuyuResizedSize(size, options);
  return { numColumns: Math.ceil(width / options.patchSize), numRows: Math.ceil(height / options.patchSize) };
}
