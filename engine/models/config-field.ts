/** Reading `config.json`: what is missing takes transformers' default, what changes the maths and is unknown is refused. */
import { z } from "zod";
import { EngineError } from "../contract/errors.ts";
import { describeIssue, excerpt } from "../json-issue.ts";

/** At least 1; for what nothing is built or allocated by. */
export const count = z.int().positive();
export const positiveNumber = z.number().positive();

/**
 * Sizes that graphs are built by. Each bound is several times the size in the largest models there are, which its comment
 * gives, and low enough that a graph of such sizes is described in seconds, and then refused for the tensors it lacks.
 */
const countUpTo = (most: number) => z.int().min(1).max(most);
/** 128, Llama 3.1 405B. */
export const layerCount = countUpTo(1024);
/** 128. */
export const headCount = countUpTo(1024);
/** Of one head: 256. */
export const headSize = countUpTo(1024);
/** Of hidden and intermediate states: 53,248. */
export const width = countUpTo(524_288);
/** 262,144. */
export const vocabularySize = countUpTo(4_194_304);
/** 10,485,760; the tables of rotary embeddings have a bound of their own. */
export const positionCount = countUpTo(134_217_728);
/** Of pictures, in pixels: 1,536. */
export const pictureSide = countUpTo(16_384);
/** Of patches in pixels, and of squares of patches: 32. */
export const patchSide = countUpTo(1024);
/** What is added to a variance before its root is taken: 1e-5. */
export const normEpsilon = z.number().positive().max(1);

/**
 * @param path Where in config.json the object lies: "" or e.g. "text_config".
 * @throws EngineError `invalid_checkpoint` naming the first field that is wrong, its value and what was expected.
 */
export function parseConfigObject<Schema extends z.ZodType>(
  schema: Schema,
  config: unknown,
  path: string,
): z.output<Schema> {
  const result = schema.safeParse(config);
  if (result.success) return result.data;
  throw new EngineError("invalid_checkpoint", `config.json: ${describeIssue(result.error, path, config)}.`);
}

/** The error for a field whose value would change the maths in a way that is not implemented. */
export function unsupportedField(path: string, field: string, value: unknown, reason?: string): EngineError {
  const explanation = reason === undefined ? "" : `: ${reason}`;
  return new EngineError(
    "unsupported_model",
    `config.json: ${fieldPath(path, field)} = ${excerpt(value)} is not supported${explanation}.`,
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
  throw unsupportedField(path, "model_type", modelType, `supported are ${Object.keys(parts).join(", ")}`);
}

function fieldPath(path: string, field: string): string {
  return path === "" || field === "" ? path + field : `${path}.${field}`;
}
