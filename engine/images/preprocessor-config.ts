/** Parses preprocessor_config.json of the image processors of CLIP, SigLIP, LLaVA and BLIP into the steps to perform. */
import { z } from "zod";

import { shown } from "../excerpt.ts";
import { colourOf } from "../multimodal/pad-picture.ts";
import {
  clipMean,
  clipStd,
  edge,
  filter,
  flag,
  parseProcessorOptions,
  scalingFields,
  scalingOf,
  scalingShape,
  unsupportedOption,
} from "../multimodal/processor-options.ts";
import type { ResampleFilterName } from "../resample-coefficients.ts";

export type Rgb = readonly [red: number, green: number, blue: number];

export interface PixelSize {
  readonly width: number;
  readonly height: number;
}

export type ResizeRule =
  /** The shorter edge gets this length; the longer edge keeps the aspect ratio, rounded down. */
  { readonly kind: "shortest-edge"; readonly edge: number } | ({ readonly kind: "exact" } & PixelSize);

/** Steps in order; null skips a step. */
export interface PreprocessorPlan {
  /** Bars of this colour make the picture square; 0 to 255 per channel. */
  readonly padToSquare: Rgb | null;
  readonly resize: { readonly rule: ResizeRule; readonly filter: ResampleFilterName } | null;
  /** Cut from the middle; a smaller picture is padded with black. */
  readonly centerCrop: PixelSize | null;
  readonly rescaleFactor: number | null;
  /** In units of the rescaled values. */
  readonly normalize: { readonly mean: readonly number[]; readonly std: readonly number[] } | null;
}

/** Defaults of a processor class for fields missing in the file. */
interface ProcessorDefaults {
  readonly size: Size;
  readonly filter: ResampleFilterName;
  readonly doCenterCrop: boolean;
  readonly cropSize: number;
  readonly mean: Rgb;
  readonly std: Rgb;
  readonly mayPad: boolean;
}

const clipDefaults: ProcessorDefaults = {
  size: { shortest_edge: 224 },
  filter: "bicubic",
  doCenterCrop: true,
  cropSize: 224,
  mean: clipMean,
  std: clipStd,
  mayPad: false,
};
const siglipDefaults: ProcessorDefaults = {
  size: { height: 224, width: 224 },
  filter: "bicubic",
  doCenterCrop: false,
  cropSize: 224,
  mean: [0.5, 0.5, 0.5],
  std: [0.5, 0.5, 0.5],
  mayPad: false,
};

const blipDefaults: ProcessorDefaults = { ...clipDefaults, size: { height: 384, width: 384 }, doCenterCrop: false };

const defaultsByProcessor: Readonly<Record<string, ProcessorDefaults>> = {
  CLIPImageProcessor: clipDefaults,
  CLIPFeatureExtractor: clipDefaults,
  LlavaImageProcessor: { ...clipDefaults, mayPad: true },
  SiglipImageProcessor: siglipDefaults,
  BlipImageProcessor: blipDefaults,
  Gemma3ImageProcessor: { ...siglipDefaults, filter: "bilinear" },
};

const length = "an integer from 1 to 16384";
const size = z.union(
  [edge, z.tuple([edge, edge]), z.record(z.string(), edge.nullish())],
  `${length}, a list of two, or an object of such lengths`,
);
type Size = z.infer<typeof size>;

/** A missing field has the processor class's default, as in Hugging Face's. */
const clipOptions = z.object({
  image_processor_type: z.string().optional(),
  feature_extractor_type: z.string().optional(),
  do_resize: flag.default(true),
  size: size.optional(),
  default_to_square: flag.default(false),
  resample: filter.optional(),
  do_center_crop: flag.optional(),
  crop_size: size.optional(),
  ...scalingFields,
  image_mean: scalingShape.image_mean.optional(),
  image_std: scalingShape.image_std.optional(),
  do_pad: flag.default(false),
});

/**
 * Accepts the content of preprocessor_config.json, or of processor_config.json in newer checkpoints, which has it below
 * `image_processor`. Throws EngineError like `parseProcessorOptions`, and `unsupported_model` for another processor
 * class.
 */
export function parsePreprocessorConfig(json: unknown): PreprocessorPlan {
  const nested = json as { readonly image_processor?: unknown } | null;
  const options = nested?.image_processor ?? json;
  const config = parseProcessorOptions(clipOptions, options);
  // Code of its own may do anything; nothing else here says which processor it is.
  const { auto_map: ownCode } = options as { readonly auto_map?: unknown };
  if (ownCode != null) throw unsupportedOption("auto_map", "is not supported");
  const type = config.image_processor_type ?? config.feature_extractor_type ?? "CLIPImageProcessor";
  // transformers 4 names the processors that compute with torch, and transformers 5 those that compute with Pillow.
  const defaults = processorDefaults(type.replace(/(Fast|Pil)$/, ""));
  if (config.do_pad && !defaults.mayPad) throw unsupportedOption("do_pad", `is not supported with ${type}`);

  const { image_mean: mean = [...defaults.mean], image_std: std = [...defaults.std] } = config;
  return {
    padToSquare: config.do_pad ? colourOf(mean) : null,
    resize: config.do_resize
      ? {
          rule: resizeRule(config.size ?? defaults.size, config.default_to_square),
          filter: config.resample ?? defaults.filter,
        }
      : null,
    centerCrop:
      (config.do_center_crop ?? defaults.doCenterCrop)
        ? exactSize("crop_size", config.crop_size ?? defaults.cropSize)
        : null,
    ...scalingOf({ ...config, image_mean: mean, image_std: std }),
  };
}

/** Size of the pixel values that a plan makes from a square picture; null if it is the picture's own. */
export function plannedSize({ resize, centerCrop }: PreprocessorPlan): PixelSize | null {
  if (centerCrop !== null) return centerCrop;
  if (resize === null) return null;
  const { rule } = resize;
  return rule.kind === "exact" ? { width: rule.width, height: rule.height } : { width: rule.edge, height: rule.edge };
}

function processorDefaults(type: string): ProcessorDefaults {
  const defaults = Object.hasOwn(defaultsByProcessor, type) ? defaultsByProcessor[type] : undefined;
  if (defaults !== undefined) return defaults;
  const supported = Object.keys(defaultsByProcessor).join(", ");
  throw unsupportedOption("image_processor_type", `is ${shown(type)}; expected one of ${supported}`);
}

function resizeRule(value: Size, isSquareByDefault: boolean): ResizeRule {
  if (typeof value === "number" && !isSquareByDefault) return { kind: "shortest-edge", edge: value };
  if (typeof value === "object" && !Array.isArray(value)) {
    const [field, ...others] = fieldsOf(value);
    if (field?.[0] === "shortest_edge" && others.length === 0) return { kind: "shortest-edge", edge: field[1] };
  }
  return { kind: "exact", ...exactSize("size", value) };
}

function exactSize(field: string, value: Size): PixelSize {
  if (typeof value === "number") return { height: value, width: value };
  if (Array.isArray(value)) return { height: value[0], width: value[1] };
  const { height, width, ...others } = Object.fromEntries(fieldsOf(value));
  if (height === undefined || width === undefined || Object.keys(others).length > 0) {
    const fields = Object.keys(value).slice(0, 4).map(shown).join(", ");
    throw unsupportedOption(
      field,
      `has the fields ${fields}; expected height and width${field === "size" ? ", or shortest_edge alone" : ""}`,
    );
  }
  return { height, width };
}

function fieldsOf(value: Readonly<Record<string, number | null | undefined>>): [string, number][] {
  return Object.entries(value).filter((entry): entry is [string, number] => typeof entry[1] === "number");
}
