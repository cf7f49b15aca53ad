/** Options that image processors of several models have in common, as preprocessor_config.json has them. */
import { z } from "zod";
import { EngineError } from "../contract/errors.ts";
import type { PixelTools } from "../multimodal/pixel-program.ts";
import type { ProcessorOptions } from "../multimodal/multimodal-processor.ts";

type FilterName = Parameters<PixelTools["resample"]>[1]["filter"];

/** By Pillow's number. */
const filterNames: readonly FilterName[] = ["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"];

export const filter = z
  .int()
  .min(0)
  .max(filterNames.length - 1)
  .transform((index) => filterNames[index]);

const perChannel = z.union(
  [
    z.tuple([z.number(), z.number(), z.number()]),
    z.number().transform((value): [number, number, number] => [value, value, value]),
  ],
  "expected a number, or three",
);

/** Rescaling and normalising; every processor here has the same defaults for them. */
export const scalingFields = {
  do_rescale: z.boolean().default(true),
  rescale_factor: z.number().default(1 / 255),
  do_normalize: z.boolean().default(true),
  image_mean: perChannel.default([0.5, 0.5, 0.5]),
  image_std: perChannel
    .refine((values) => values.every((value) => value !== 0), "must not be 0")
    .default([0.5, 0.5, 0.5]),
};

/** Those of the options above that a request may set: they do not change how many embeddings a picture has. */
export const scalingOptions = ["do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std"] as const;

/** Fields that change nothing for one RGB picture. */
const withoutEffect: ReadonlySet<string> = new Set([
  "_valid_processor_keys",
  "data_format",
  "device",
  "disable_grouping",
  "do_convert_rgb",
  "image_processor_type",
  "input_data_format",
  "model_input_names",
  "processor_class",
  "return_row_col_info",
  "return_tensors",
  "video_sampling",
]);

/**
 * A missing or null field takes the schema's default.
 *
 * @throws EngineError `invalid_checkpoint` for a value of the wrong kind, `unsupported_model` for a field that the schema
 *   does not know; both name it.
 */
export function parseProcessorOptions<Shape extends z.ZodRawShape>(
  schema: z.ZodObject<Shape>,
  options: ProcessorOptions,
): z.output<z.ZodObject<Shape>> {
  const given = Object.entries(options).filter(([, value]) => value !== null);
  for (const [field, value] of given) {
    if (value === false || field in schema.shape || withoutEffect.has(field)) continue;
    throw new EngineError("unsupported_model", `preprocessor_config.json: the field ${field} is not supported.`);
  }
  const parsed = schema.safeParse(Object.fromEntries(given));
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const field = issue.path.join(".") || "it";
  throw new EngineError("invalid_checkpoint", `preprocessor_config.json: ${field}: ${issue.message}.`);
}

/** What `PixelTools.valuesOfBytes` takes. */
export function scalingOf(options: z.output<z.ZodObject<typeof scalingFields>>): {
  rescaleFactor: number | null;
  normalize: { mean: [number, number, number]; std: [number, number, number] } | null;
} {
  return {
    rescaleFactor: options.do_rescale ? options.rescale_factor : null,
    normalize: options.do_normalize ? { mean: options.image_mean, std: options.image_std } : null,
  };
}
