/** preprocessor_config.json of CLIP's and LLaVA's image processors, parsed to the steps it stands for. */
import { z } from "zod";
import { EngineError } from "../errors.ts";
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

const PROCESSOR_TYPES = ["CLIPImageProcessor", "CLIPFeatureExtractor", "LlavaImageProcessor"];

/** By Pillow's number. */
const FILTERS: readonly ResampleFilterName[] = ["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"];

const OPENAI_CLIP_MEAN: Rgb = [0.48145466, 0.4578275, 0.40821073];
const OPENAI_CLIP_STD: Rgb = [0.26862954, 0.26130258, 0.27577711];
const CLIP_SIZE = 224;

const edge = z.int().min(1).max(16_384);
const size = z.union([edge, z.tuple([edge, edge]), z.record(z.string(), edge.nullish())]);
type Size = z.infer<typeof size>;
const perChannel = z.union([
  z.tuple([z.number(), z.number(), z.number()]),
  z.number().transform((value): [number, number, number] => [value, value, value]),
]);
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

  const type = (config.image_processor_type ?? config.feature_extractor_type ?? PROCESSOR_TYPES[0]).replace(
    /Fast$/,
    "",
  );
  if (!PROCESSOR_TYPES.includes(type)) {
    throw unsupported(`the image processor ${type} is not supported; supported are ${PROCESSOR_TYPES.join(", ")}`);
  }
  const isPadded = config.do_pad ?? false;
  if (isPadded && type !== "LlavaImageProcessor") throw unsupported(`do_pad is not supported with ${type}`);

  const mean = config.image_mean ?? OPENAI_CLIP_MEAN;
  const std = config.image_std ?? OPENAI_CLIP_STD;
  return {
    padToSquare: isPadded ? [byteOf(mean[0]), byteOf(mean[1]), byteOf(mean[2])] : null,
    resize:
      (config.do_resize ?? true)
        ? {
            rule: resizeRule(config.size ?? { shortest_edge: CLIP_SIZE }, config.default_to_square ?? false),
            filter: FILTERS[config.resample ?? 3],
          }
        : null,
    centerCrop: (config.do_center_crop ?? true) ? exactSize("crop_size", config.crop_size ?? CLIP_SIZE) : null,
    rescaleFactor: (config.do_rescale ?? true) ? (config.rescale_factor ?? 1 / 255) : null,
    normalize: (config.do_normalize ?? true) ? { mean, std } : null,
  };
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
