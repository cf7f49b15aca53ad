/**
 * Parses `config.json`. A missing field has transformers' default; an unknown value that changes the computation is
 * rejected.
 */
import { z } from "zod";

import { EngineError } from "../contract/errors.ts";
import { excerpt } from "../excerpt.ts";
import { describeProblem, readBySchema } from "../schema-problem.ts";

/** At least 1; for values that determine no size of a graph or allocation. */
export const count = z.int().positive();
export const positiveNumber = z.number().positive();

/**
 * Sizes from which graphs are built. Each bound is several times the largest value in existing models, given in its
 * comment, and small enough that a graph of such sizes is described in seconds and then rejected for missing tensors.
 */
const countUpTo = (most: number) => z.int().min(1).max(most);
/** 128, Llama 3.1 405B. */
export const layerCount = countUpTo(1024);
/** 128. */
export const headCount = countUpTo(1024);
/** Size of one head: 256. */
export const headSize = countUpTo(1024);
/** Width of hidden and intermediate states: 53,248. */
export const width = countUpTo(524_288);
/** Of a layer: 512. */
export const expertCount = countUpTo(4096);
/** 262,144. */
export const vocabularySize = countUpTo(4_194_304);
/** 10,485,760; the tables of rotary embeddings have a separate bound. */
export const MAX_POSITIONS = 134_217_728;
export const positionCount = countUpTo(MAX_POSITIONS);
/** Side of pictures, in pixels: 1,536. */
export const pictureSide = countUpTo(16_384);
/** Side of patches in pixels, and of squares in patches: 32. */
export const patchSide = countUpTo(1024);
/** Added to a variance before its root is taken: 1e-5. */
export const normEpsilon = z.number().positive().max(1);

/**
 * @param path Path of the object in config.json: "" or e.g. "text_config".
 * @throws EngineError `invalid_checkpoint` that names the first invalid field, its value and what was expected.
 */
export function parseConfigObject<Schema extends z.ZodType>(
  schema: Schema,
  config: unknown,
  path: string,
): z.output<Schema> {
  const result = readBySchema(schema, config);
  if (result.isValid) return result.value;
  throw new EngineError("invalid_checkpoint", `config.json: ${describeProblem(result, path)}.`);
}

/** The error for a field whose value would change the computation in a way that is not implemented. */
export function unsupportedField(path: string, field: string, value: unknown, reason?: string): EngineError {
  const explanation = reason === undefined ? "" : `: ${reason}`;
  return new EngineError(
    "unsupported_model",
    `config.json: ${fieldPath(path, field)} = ${excerpt(value)} is not supported${explanation}.`,
  );
}

/** Rejects a decoder whose key and value heads cannot share its query heads evenly. */
export function requireWholeGroups(path: string, numHeads: number, numKvHeads: number): void {
  if (numHeads % numKvHeads === 0) return;
  throw unsupportedField(path, "num_key_value_heads", numKvHeads, `${numHeads} query heads are not divisible by it`);
}

/** Rejects a size of heads for which attention has no kernel. */
export function requireHeadSize(path: string, headDim: number): void {
  if (headDim % 8 !== 0) throw unsupportedField(path, "head_dim", headDim, "it must be a multiple of 8");
}

/**
 * Rejects fields that change the computation, unless their values change nothing.
 *
 * @param neutralValues The accepted values of each field. A missing or null field is always accepted.
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
 * Returns the part that an object's `model_type` names.
 *
 * @throws EngineError `unsupported_model` that lists the existing ones.
 */
export function byModelType<Part>(parts: Readonly<Record<string, Part>>, path: string, modelType: string): Part {
  const part = Object.hasOwn(parts, modelType) ? parts[modelType] : undefined;
  if (part !== undefined) return part;
  throw unsupportedField(path, "model_type", modelType, `supported are ${Object.keys(parts).join(", ")}`);
}

function fieldPath(path: string, field: string): string {
  return path === "" || field === "" ? path + field : `${path}.${field}`;
}
