/** The contract of a method that quantises checkpoints, and checks that methods share. */
import { z } from "zod";

import { EngineError } from "../../contract/errors.ts";
import { describeError, excerpt } from "../../excerpt.ts";
import { describeProblem, readBySchema } from "../../schema-problem.ts";
import type { ElementType, QuantisedMatrix, StoredTensor } from "../stored-tensor.ts";

export type Tensors = ReadonlyMap<string, StoredTensor>;

/** A checkpoint's `quantization_config`, parsed. */
export interface Quantisation {
  /** Such as "AWQ, 4 bits in groups of 128". */
  readonly description: string;
  /** Whether kernels compute with the stored integers; otherwise weights are dequantised when they are loaded. */
  readonly keepsIntegers: boolean;
  /** Last parts of the names of its tensors, among `partSuffixes`. */
  readonly suffixes: readonly string[];
  /**
   * Finds the quantised matrices, under the names of their modules.
   *
   * @throws EngineError `invalid_checkpoint` that names a tensor that is missing, or of another type or shape.
   */
  locate(tensors: Tensors): Promise<ReadonlyMap<string, LocatedMatrix>>;
}

export interface LocatedMatrix {
  readonly shape: readonly [outFeatures: number, inFeatures: number];
  readonly matrix: QuantisedMatrix;
}

/** Last parts of the names of tensors that belong to a quantised matrix, and the methods that write them. */
export const partSuffixes: Readonly<Record<string, string>> = {
  qweight: "awq, gptq or auto-round",
  qzeros: "awq, gptq or auto-round",
  g_idx: "gptq or auto-round",
  weight_packed: "compressed-tensors",
  weight_g_idx: "compressed-tensors",
  weight_zero_point: "compressed-tensors",
  weight_global_scale: "compressed-tensors",
  weight_scale: "compressed-tensors, fp8 or modelopt",
  weight_scale_2: "modelopt",
  weight_scale_inv: "fp8",
  gate_up_proj_scale_inv: "fp8",
  down_proj_scale_inv: "fp8",
  SCB: "bitsandbytes in 8 bits",
  absmax: "bitsandbytes in 4 bits",
  quant_map: "bitsandbytes in 4 bits",
};

export const floatTypes = ["float32", "float16", "bfloat16"] as const;

/** The value of a multiple of 16 that is a group, or -1 for all inputs of an output. */
export const groupSizeField = z
  .int()
  .refine((size) => size === -1 || (size >= 16 && size % 16 === 0), { error: "expected -1 or a multiple of 16" });

/** @throws EngineError `invalid_checkpoint` that names the first invalid field. */
export function parseQuantisationFields<Schema extends z.ZodType>(schema: Schema, fields: unknown): z.output<Schema> {
  const result = readBySchema(schema, fields);
  if (result.isValid) return result.value;
  throw invalidCheckpoint(`config.json: ${describeProblem(result, "quantization_config")}.`);
}

/** The error for a value that is not implemented. @param field Path inside of quantization_config. */
export function unsupported(field: string, value: unknown, reason: string): EngineError {
  return new EngineError(
    "unsupported_model",
    `config.json: quantization_config.${field} = ${excerpt(value)} is not supported: ${reason}.`,
  );
}

export function invalidCheckpoint(message: string): EngineError {
  return new EngineError("invalid_checkpoint", message);
}

/** Modules with a tensor `{module}.{suffix}`, in the order of the file. */
export function* modulesWith(tensors: Tensors, suffix: string): Generator<[module: string, tensor: StoredTensor]> {
  for (const [name, tensor] of tensors) {
    if (name.endsWith(`.${suffix}`)) yield [name.slice(0, -suffix.length - 1), tensor];
  }
}

/** @throws EngineError `invalid_checkpoint` if the tensor is missing or has another type. */
export function requirePart(
  tensors: Tensors,
  name: string,
  besides: string,
  elementTypes: readonly ElementType[],
): StoredTensor {
  const tensor = tensors.get(name);
  if (tensor === undefined) {
    throw invalidCheckpoint(`The checkpoint has ${besides}, but no tensor ${name} to dequantise it.`);
  }
  requireType(tensor, elementTypes);
  return tensor;
}

export function requireType({ name, elementType }: StoredTensor, elementTypes: readonly ElementType[]): void {
  if (elementTypes.includes(elementType)) return;
  throw invalidCheckpoint(`Tensor ${name} is stored as ${elementType}; expected ${elementTypes.join(" or ")}.`);
}

/** @param reason What the expected shape follows from. */
export function requireShape({ name, shape }: StoredTensor, expected: readonly number[], reason: string): void {
  if (shape.length === expected.length && shape.every((size, axis) => size === expected[axis])) return;
  throw invalidCheckpoint(
    `Tensor ${name} has shape [${shape.join(", ")}]; expected [${expected.join(", ")}] with ${reason}.`,
  );
}

export function requireMatrix(tensor: StoredTensor): readonly [number, number] {
  const [rows = 0, columns = 0] = tensor.shape;
  if (tensor.shape.length === 2 && rows > 0 && columns > 0) return [rows, columns];
  throw invalidCheckpoint(`Tensor ${tensor.name} has shape [${tensor.shape.join(", ")}]; expected a matrix.`);
}

/** Inputs per group. */
export function checkedGroupSize(module: string, groupSize: number, inFeatures: number): number {
  if (groupSize === -1) return inFeatures;
  if (inFeatures % groupSize === 0) return groupSize;
  throw invalidCheckpoint(
    `${module} has ${inFeatures} inputs, which is not a multiple of the group size ${groupSize} in quantization_config.`,
  );
}

/** A Python expression that matches from the beginning of a module's name. @param field Path inside of quantization_config. */
export function compilePattern(field: string, expression: string): RegExp {
  try {
    return new RegExp(`^(?:${expression})`);
  } catch (cause) {
    throw invalidCheckpoint(
      `config.json: quantization_config.${field} has no valid regular expression (${describeError(cause)}).`,
    );
  }
}
