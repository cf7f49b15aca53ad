/** Options of preprocessor_config.json that image processors of several models share. */
import { z } from "zod";

import { EngineError } from "../contract/errors.ts";
import { readBySchema } from "../schema-problem.ts";
import type { PixelTools } from "./pixel-program.ts";

type FilterName = Parameters<PixelTools["resample"]>[1]["filter"];

/** By Pillow's number. */
const filterNames: readonly FilterName[] = ["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"];

/** An optional step of the processor. */
export const flag = z.boolean("true or false");

/** A required step. `reason` follows a colon. */
export function always(reason: string) {
  return z.literal(true, `true: ${reason}`);
}

export function integer(min: number, max: number) {
  const range = `an integer from ${min} to ${max}`;
  return z.int(range).min(min, range).max(max, range);
}

export const filter = integer(0, filterNames.length - 1).transform((index) => filterNames[index]);

/** Side of a picture, in pixels. Its square is the largest picture that decoders accept. */
export const edge = integer(1, 16_384);

/** Numbers for the three channels, or one for all. */
function perChannel(min: number, max: number) {
  const range = `a number from ${min} to ${max}`;
  return z.unknown().transform((value, context): [number, number, number] => {
    const refuse = (path: readonly number[], message: string): never => {
      context.addIssue({ code: "custom", path: [...path], message });
      return z.NEVER;
    };
    const isWithin = (channel: unknown): channel is number =>
      typeof channel === "number" && channel >= min && channel <= max;
    if (isWithin(value)) return [value, value, value];
    if (!Array.isArray(value) || value.length !== 3) return refuse([], `${range}, or a list of three`);
    const channels = value as [unknown, unknown, unknown];
    const wrong = channels.findIndex((channel) => !isWithin(channel));
    return wrong === -1 ? (channels as [number, number, number]) : refuse([wrong], range);
  });
}

/**
 * Ranges in which no step exceeds float32, far wider than values in use: a factor of 1/255, or means and deviations in
 * units of bytes.
 */
export const scalingShape = {
  do_rescale: flag,
  rescale_factor: z.number("a number from 0 to 1").min(0, "a number from 0 to 1").max(1, "a number from 0 to 1"),
  do_normalize: flag,
  image_mean: perChannel(-255, 255),
  image_std: perChannel(0.001, 255),
};

/** Rescaling and normalising, with the defaults of most processors. */
export const scalingFields = {
  do_rescale: scalingShape.do_rescale.default(true),
  rescale_factor: scalingShape.rescale_factor.default(1 / 255),
  do_normalize: scalingShape.do_normalize.default(true),
  image_mean: scalingShape.image_mean.default([0.5, 0.5, 0.5]),
  image_std: scalingShape.image_std.default([0.5, 0.5, 0.5]),
};

/** Means and deviations of red, green and blue in CLIP's training data, which many later processors use too. */
export const clipMean: [number, number, number] = [0.48145466, 0.4578275, 0.40821073];
export const clipStd: [number, number, number] = [0.26862954, 0.26130258, 0.27577711];

/** Rescaling and normalising by CLIP's means and deviations. */
export const clipScalingFields = {
  ...scalingFields,
  image_mean: scalingShape.image_mean.default(clipMean),
  image_std: scalingShape.image_std.default(clipStd),
};

/** Options above that a request may set: they do not change the number of embeddings. */
export const scalingOptions = ["do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std"] as const;

/**
 * Fields that change nothing for one RGB picture. Clients of transformers and vLLM send some of them: which of two
 * equal processors to use, which type of tensor to return, on which device.
 */
export const optionsWithoutEffect = {
  data_format: z.literal("channels_first", '"channels_first"'),
  device: z.string("the name of a device").or(z.int("the name of a device")),
  disable_grouping: flag,
  do_convert_rgb: flag,
  input_data_format: z.string("a text"),
  return_tensors: z.string("a text"),
  use_fast: flag,
};

/** Other fields of the files, whose content does not matter. */
const otherFields: ReadonlySet<string> = new Set([
  "_valid_processor_keys",
  // Code of the checkpoint, which is never run.
  "auto_map",
  // For sizes given as one number. Processors that accept those have an option of this name.
  "default_to_square",
  "feature_extractor_type",
  "image_processor_type",
  "image_seq_length",
  "model_input_names",
  "processor_class",
  "return_row_col_info",
  "video_sampling",
]);

/** Above it, float16 on GPUs overflows in an encoder's first layer. Bytes themselves reach 255. */
const MAX_PIXEL_VALUE = 1024;

/**
 * Parses options by a schema in which all fields are optional. A null field counts as missing.
 *
 * @throws EngineError `invalid_checkpoint` for an invalid value, `unsupported_model` for a field that the schema does
 * not have. `parameter` is the path of the option (`image_std[0]`), with which the message starts.
 */
export function parseProcessorOptions<Shape extends z.ZodRawShape>(
  schema: z.ZodObject<Shape>,
  options: unknown,
): z.output<z.ZodObject<Shape>> {
  const isObject = typeof options === "object" && options !== null;
  const given = isObject ? Object.entries(options).filter(([, value]) => value !== null) : [];
  for (const [field, value] of given) {
    const isKnown =
      Object.hasOwn(schema.shape, field) || Object.hasOwn(optionsWithoutEffect, field) || otherFields.has(field);
    if (value !== false && !isKnown) throw unsupportedOption(field, "is not supported");
  }
  const layout = readBySchema(z.object({ data_format: optionsWithoutEffect.data_format.optional() }), options);
  if (!layout.isValid) throw invalidOption(layout.path, layout.problem);
  const result = readBySchema(schema, Object.fromEntries(given));
  if (!result.isValid) throw invalidOption(result.path, result.problem);
  return result.value;
}

/** `problem` follows the path: `is 0; expected an integer from 1 to 5`. */
export function invalidOption(path: string, problem: string): EngineError {
  return optionError("invalid_checkpoint", path, problem);
}

/** Like `invalidOption`, for a valid value that is not implemented. */
export function unsupportedOption(path: string, problem: string): EngineError {
  return optionError("unsupported_model", path, problem);
}

function optionError(code: "invalid_checkpoint" | "unsupported_model", path: string, problem: string): EngineError {
  return new EngineError(code, `${path || "it"} ${problem}.`, { parameter: path });
}

type Scaling = z.output<z.ZodObject<typeof scalingFields>>;

/** Arguments for `PixelTools.valuesOfBytes`. Throws like `parseProcessorOptions` if values would become too large. */
export function scalingOf(options: Scaling): {
  rescaleFactor: number | null;
  normalize: { mean: [number, number, number]; std: [number, number, number] } | null;
} {
  const rescaleFactor = options.do_rescale ? options.rescale_factor : null;
  if (!options.do_normalize) return { rescaleFactor, normalize: null };
  const { image_mean: mean, image_std: std } = options;
  const largest = Math.max(
    ...[0, 255 * (rescaleFactor ?? 1)].flatMap((value) =>
      mean.map((center, channel) => Math.abs(value - center) / std[channel]!),
    ),
  );
  if (largest > MAX_PIXEL_VALUE) {
    throw invalidOption(
      "image_std",
      `makes pixel values of up to ${Math.round(largest)} together with the other options; expected at most ${MAX_PIXEL_VALUE}`,
    );
  }
  return { rescaleFactor, normalize: { mean, std } };
}
