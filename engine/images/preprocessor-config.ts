/** preprocessor_config.json of CLIP's, SigLIP's and LLaVA's image processors, parsed to the steps it stands for. */
import { z } from "zod";
import { EngineError } from "../contract/errors.ts";
import type { ResampleFilterName } from "./resample-coefficients.ts";

export type Rgb = readonly [red: number, green: number, blue: number];

export interface PixelSize {
  readonly width: number;
  readonly height: number;
}

export type ResizeRule =
  /** The shorter edge gets this length, the longer one keeps the aspect ratio, rounded down. */
  { readonly kind: "shortest-edge"; readonly edge: number } | ({ readonly kind: "exact" } & PixelSize);

/** Steps in the order they are taken; null leaves one out. */
export interface PreprocessorPlan {
  /** Bars of this colour make the picture square, 0 to 255 a channel. */
  readonly padToSquare: Rgb | null;
  readonly resize: { readonly rule: ResizeRule; readonly filter: ResampleFilterName } | null;
  /** Cut out of the middle; where the picture is smaller, filled up with black. */
  readonly centerCrop: PixelSize | null;
  readonly rescaleFactor: number | null;
  /** In the unit of the rescaled values. */
  readonly normalize: { readonly mean: readonly number[]; readonly std: readonly number[] } | null;
}

/** By Pillow's number. */
const FILTERS: readonly ResampleFilterName[] = ["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"];

/** What a processor class does where the file is silent. */
interface ProcessorDefaults {
  readonly size: Size;
  readonly doCenterCrop: boolean;
  readonly cropSize: number;
  readonly mean: Rgb;
  readonly std: Rgb;
  readonly mayPad: boolean;
}

const CLIP: ProcessorDefaults = {
  size: { shortest_edge: 224 },
  doCenterCrop: true,
  cropSize: 224,
  mean: [0.48145466, 0.4578275, 0.40821073],
  std: [0.26862954, 0.26130258, 0.27577711],
  mayPad: false,
};
const SIGLIP: ProcessorDefaults = {
  size: { height: 224, width: 224 },
  doCenterCrop: false,
  cropSize: 224,
  mean: [0.5, 0.5, 0.5],
  std: [0.5, 0.5, 0.5],
  mayPad: false,
};

const PROCESSORS: Readonly<Record<string, ProcessorDefaults>> = {
  CLIPImageProcessor: CLIP,
  CLIPFeatureExtractor: CLIP,
  LlavaImageProcessor: { ...CLIP, mayPad: true },
  SiglipImageProcessor: SIGLIP,
};

const edge = z.int().min(1).max(16_384);
const size = z.union(
  [edge, z.tuple([edge, edge]), z.record(z.string(), edge.nullish())],
  "expected a length from 1 to 16384, or two, or an object of lengths",
);
type Size = z.infer<typeof size>;
const perChannel = z.union(
  [
    z.tuple([z.number(), z.number(), z.number()]),
    z.number().transform((value): [number, number, number] => [value, value, value]),
  ],
  "expected a number, or three",
);
const nonZero = perChannel.refine((values) => values.every((value) => value !== 0), "must not be 0");

/** Fields that change nothing for one RGB picture turned into channels-first values. */
const WITHOUT_EFFECT = {
  do_convert_rgb: z.boolean().nullish(),
  data_format: z.literal("channels_first").nullish(),
  input_data_format: z.unknown().optional(),
  return_tensors: z.unknown().optional(),
  device: z.unknown().optional(),
  disable_grouping: z.unknown().optional(),
  image_seq_length: z.unknown().optional(),
  processor_class: z.unknown().optional(),
  _valid_processor_keys: z.unknown().optional(),
  model_input_names: z.unknown().optional(),
};

/** A missing or null field takes the processor class's default, as in Hugging Face's. */
const preprocessorConfig = z.object({
  ...WITHOUT_EFFECT,
  image_processor_type: z.string().nullish(),
  feature_extractor_type: z.string().nullish(),
  do_resize: z.boolean().nullish(),
  size: size.nullish(),
  default_to_square: z.boolean().nullish(),
  resample: z
    .int()
    .min(0)
    .max(FILTERS.length - 1)
    .nullish(),
  do_center_crop: z.boolean().nullish(),
  crop_size: size.nullish(),
  do_rescale: z.boolean().nullish(),
  rescale_factor: z.number().nullish(),
  do_normalize: z.boolean().nullish(),
  image_mean: perChannel.nullish(),
  image_std: nonZero.nullish(),
  do_pad: z.boolean().nullish(),
});

/**
 * Takes the content of preprocessor_config.json, or of processor_config.json, which newer checkpoints have instead and
 * which holds it below `image_processor`. Throws EngineError `unsupported_model` for another processor class or a field this one does not know, by name;
 * `invalid_checkpoint` for a value of the wrong kind.
 */
export function parsePreprocessorConfig(json: unknown): PreprocessorPlan {
  const nested = json as { readonly image_processor?: unknown } | null;
  const fields = nested?.image_processor ?? json;
  const parsed = preprocessorConfig.safeParse(fields);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    const field = issue.path.length === 0 ? "it" : issue.path.join(".");
    throw new EngineError("invalid_checkpoint", `preprocessor_config.json: ${field}: ${issue.message}.`);
  }
  const config = parsed.data;
  refuseUnknownFields(fields as Readonly<Record<string, unknown>>);

  const type = config.image_processor_type ?? config.feature_extractor_type ?? "CLIPImageProcessor";
  const defaults = processorDefaults(type.replace(/Fast$/, ""));
  const isPadded = config.do_pad ?? false;
  if (isPadded && !defaults.mayPad) throw unsupported(`do_pad is not supported with ${type}`);

  const mean = config.image_mean ?? defaults.mean;
  const std = config.image_std ?? defaults.std;
  return {
    padToSquare: isPadded ? [byteOf(mean[0]), byteOf(mean[1]), byteOf(mean[2])] : null,
    resize:
      (config.do_resize ?? true)
        ? {
            rule: resizeRule(config.size ?? defaults.size, config.default_to_square ?? false),
            filter: FILTERS[config.resample ?? 3],
          }
        : null,
    centerCrop:
      (config.do_center_crop ?? defaults.doCenterCrop)
        ? exactSize("crop_size", config.crop_size ?? defaults.cropSize)
        : null,
    rescaleFactor: (config.do_rescale ?? true) ? (config.rescale_factor ?? 1 / 255) : null,
    normalize: (config.do_normalize ?? true) ? { mean, std } : null,
  };
}

function processorDefaults(type: string): ProcessorDefaults {
  const defaults = Object.hasOwn(PROCESSORS, type) ? PROCESSORS[type] : undefined;
  if (defaults !== undefined) return defaults;
  throw unsupported(
    `the image processor ${type} is not supported; supported are ${Object.keys(PROCESSORS).join(", ")}`,
  );
}

function refuseUnknownFields(config: Readonly<Record<string, unknown>>): void {
  for (const [field, value] of Object.entries(config)) {
    const isOff = value === null || value === false;
    if (!isOff && !(field in preprocessorConfig.shape)) throw unsupported(`the field ${field} is not supported`);
  }
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
    throw unsupported(`${field} with ${Object.keys(value).join(", ")} is not supported`);
  }
  return { height, width };
}

function fieldsOf(value: Readonly<Record<string, number | null | undefined>>): [string, number][] {
  return Object.entries(value).filter((entry): entry is [string, number] => typeof entry[1] === "number");
}

/** Share of full brightness to its byte, rounded down as Python's `int(x * 255)`. */
function byteOf(share: number): number {
  return Math.min(Math.max(Math.trunc(share * 255), 0), 255);
}

function unsupported(reason: string): EngineError {
  return new EngineError("unsupported_model", `preprocessor_config.json: ${reason}.`);
}
