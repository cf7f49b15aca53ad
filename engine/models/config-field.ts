/** Reading `config.json`: what is missing takes transformers' default, what changes the maths and is unknown is refused. */
import { z } from "zod";
import { EngineError } from "../contract/errors.ts";
import { readBySchema } from "../schema-problem.ts";

export const count = z.int().positive();
export const positiveNumber = z.number().positive();

/**
 * @param path Where in config.json the object lies: "" or e.g. "text_config".
 * @throws EngineError `invalid_checkpoint` naming the first field of a wrong type and its value.
 */
export function parseConfigObject<Schema extends z.ZodType>(
  schema: Schema,
  config: unknown,
  path: string,
): z.output<Schema> {
  const result = readBySchema(schema, config);
  if (result.isValid) return result.value;
  const field = fieldPath(path, result.path);
  throw new EngineError("invalid_checkpoint", `config.json: ${field || "the whole"} is wrong: it ${result.problem}.`);
}

/** The error for a field whose value would change the maths in a way that is not implemented. */
export function unsupportedField(path: string, field: string, value: unknown, reason?: string): EngineError {
  const explanation = reason === undefined ? "" : `: ${reason}`;
  return new EngineError(
    "unsupported_model",
    `config.json: ${fieldPath(path, field)} = ${JSON.stringify(value)} is not supported${explanation}.`,
  );
}

/**
 * Refuses fields that change the maths unless they have one of the values under which they change nothing.
 *
 * @param neutralValues For each field, the values that are accepted; a missing or null field always is.
 */
export function refuseOtherThan(
  config: unknown,
  path: string,
  neutralValues: Readonly<Record<string, readonly unknown[]>>,
): void {
  const fields = config as Readonly<Record<string, unknown>>;
  for (const [field, accepted] of Object.entries(neutralValues)) {
    const value = fields[field] ?? null;
    if (value !== null && !accepted.includes(value)) throw unsupportedField(path, field, value);
  }
}

/**
 * The part that an object's `model_type` names.
 *
 * @throws EngineError `unsupported_model` naming those there are.
 */
export function byModelType<Part>(parts: Readonly<Record<string, Part>>, path: string, modelType: string): Part {
  const part = Object.hasOwn(parts, modelType) ? parts[modelType] : undefined;
  if (part !== undefined) return part;
  throw unsupportedField(path, "model_type", modelType, `known are ${Object.keys(parts).join(", ")}`);
}

function fieldPath(path: string, field: string): string {
  return path === "" || field === "" ? path + field : `${path}.${field}`;
}
