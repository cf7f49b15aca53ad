/** Options that image processors of several models have in common, as preprocessor_config.json has them. */
import { z } from "zod";
import { EngineError } from "../contract/errors.ts";
import { readBySchema } from "../schema-problem.ts";
import type { PixelTools } from "./pixel-program.ts";

type FilterName = Parameters<PixelTools["resample"]>[1]["filter"];

/** By Pillow's number. */
const filterNames: readonly FilterName[] = ["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"];

/** A step of the processor that is taken or not. */
export const flag = z.boolean("true or false");

/** A step that cannot be left out. `reason` follows a colon. */
export function always(reason: string) {
  return z.literal(true, `true: ${reason}`);
}

export function integer(min: number, max: number) {
  const range = `an integer from ${min} to ${max}`;
  return z.int(range).min(min, range).max(max, range);
}

export const filter = integer(0, filterNames.length - 1).transform((index) => filterNames[index]);

/** Side of a picture, in pixels: what a square of is still the largest picture that decoders take. */
export const edge = integer(1, 16_384);

/** Numbers of the three channels, or one for all of them. */
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
 * Ranges in which no step leaves float32, and far beyond those in use: a factor of 1/255, or means and deviations in the
 * unit of bytes.
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

/** Those of the options above that a request may set: they do not change how many embeddings a picture has. */
export const scalingOptions = ["do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std"] as const;

/**
 * Fields that change nothing for one RGB picture. Clients of transformers and vLLM send some of them with requests: which
 * of two equal processors to take, which kind of tensor to return, on which device.
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

/** As they are in files, beside the options; what they hold does not matter. */
const otherFields: ReadonlySet<string> = new Set([
  "_valid_processor_keys",
  "feature_extractor_type",
  "image_processor_type",
  "image_seq_length",
  "model_input_names",
  "processor_class",
  "return_row_col_info",
  "video_sampling",
]);

/** Beyond it float16, in which GPUs compute, overflows in an encoder's first layer; bytes themselves reach 255. */
const MAX_PIXEL_VALUE = 1024;

/**
 * Parses options by a schema whose fields may all be missing; a null field is a missing one.
 *
 * @throws EngineError `invalid_checkpoint` for a value that does not fit, `unsupported_model` for a field that the schema
 *   does not know. Its `parameter` is the path of the option (`image_std[0]`), with which the message begins.
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

/** As `invalidOption`, for a value that has a meaning which is not implemented. */
export function unsupportedOption(path: string, problem: string): EngineError {
  return optionError("unsupported_model", path, problem);
}

function optionError(code: "invalid_checkpoint" | "unsupported_model", path: string, problem: string): EngineError {
  return new EngineError(code, `${path || "it"} ${problem}.`, { parameter: path });
}

type Scaling = z.output<z.ZodObject<typeof scalingFields>>;

/** What `PixelTools.valuesOfBytes` takes. Throws as `parseProcessorOptions` where values would become too large. */
export function scalingOf(options: Scaling): {
  rescaleFactor: number | null;
  normalize: { mean: [number, number, number]; std: [number, number, number] } | null;
} {
  const rescaleFactor = options.do_rescale ? options.rescale_factor : null;
  if (!options.do_normalize) return { rescaleFactor, normalize: null };
  const { image_mean: mean, image_std: std } = options;
  const largest = Math.max(
    ...[0, 255 * (rescaleFactor ?? 1)].flatMap((value) =>
      mean.map((center, channel) => Math.abs(value - center) / std[channel]),
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
