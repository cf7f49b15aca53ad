/** compressed-tensors, the format of LLM Compressor: packed and plain integers, and float8. */
import { z } from "zod";

import type { StoredTensor } from "../stored-tensor.ts";
import { readColumnOrder } from "./column-order.ts";
import {
  checkedGroupSize,
  compilePattern,
  floatTypes,
  groupSizeField,
  invalidCheckpoint,
  modulesWith,
  parseQuantisationFields,
  requireMatrix,
  requirePart,
  requireShape,
  requireType,
  unsupported,
  type LocatedMatrix,
  type Quantisation,
  type Tensors,
} from "./quantisation.ts";

const argumentsSchema = z.looseObject({
  num_bits: z.int(),
  type: z.string().default("int"),
  symmetric: z.boolean().default(true),
  strategy: z.string().nullish(),
  group_size: groupSizeField.nullish(),
  block_structure: z.unknown().optional(),
  dynamic: z.union([z.boolean(), z.string()]).default(false),
});

const groupSchema = z.looseObject({
  targets: z.array(z.string()),
  weights: argumentsSchema.nullish(),
  input_activations: argumentsSchema.nullish(),
  output_activations: z.unknown().optional(),
});

/** `ignore` is not read: a module is quantised if the files have its codes. */
const fieldsSchema = z.looseObject({
  format: z.string().nullish(),
  config_groups: z.record(z.string(), groupSchema),
  kv_cache_scheme: z.unknown().optional(),
  sparsity_config: z.unknown().optional(),
  transform_config: z.unknown().optional(),
});

/** Formats of weights in whole, see `CompressionFormat` of compressed-tensors. */
const servedFormats: readonly string[] = [
  "pack-quantized",
  "int-quantized",
  "float-quantized",
  "naive-quantized",
  "mixed-precision",
];

type Arguments = z.output<typeof argumentsSchema>;

interface Scheme {
  readonly name: string;
  readonly matches: (module: string) => boolean;
  readonly isClass: boolean;
  readonly weights: Arguments;
  readonly quantisesActivations: boolean;
}

export function parseCompressedTensors(json: unknown): Quantisation {
  const fields = parseQuantisationFields(fieldsSchema, json);
  if (fields.format != null && !servedFormats.includes(fields.format)) {
    throw unsupported("format", fields.format, `served are ${servedFormats.join(", ")}`);
  }
  for (const field of ["kv_cache_scheme", "sparsity_config", "transform_config"] as const) {
    if (!isNeutral(fields[field])) throw unsupported(field, fields[field], "only weights are served quantised");
  }
  const schemes = Object.entries(fields.config_groups).flatMap(([name, group]) => parseGroup(name, group));
  return {
    description: `compressed-tensors, ${schemes.map(describeScheme).join(" and ")}`,
    keepsIntegers: schemes.some(({ weights }) => weights.type === "int"),
    suffixes: ["weight_packed", "weight_shape", "weight_scale", "weight_zero_point", "weight_g_idx"],
    async locate(tensors) {
      const located = new Map<string, LocatedMatrix>();
      for (const [module, codes] of modulesWith(tensors, "weight_packed")) {
        const scheme = schemeOf(schemes, module);
        located.set(module, await locateIntegers(tensors, module, codes, scheme));
      }
      for (const [module] of modulesWith(tensors, "weight_scale")) {
        if (located.has(module)) continue;
        const scheme = schemeOf(schemes, module);
        const isFloat = scheme.weights.type === "float";
        const expected = isFloat ? "float8e4m3" : "int8";
        const codes = requirePart(tensors, `${module}.weight`, `${module}.weight_scale`, [expected]);
        located.set(
          module,
          isFloat ? locateFloat8(tensors, module, codes, scheme) : await locateIntegers(tensors, module, codes, scheme),
        );
      }
      return located;
    },
  };
}

/** Null, an empty object, or a description of nothing. */
function isNeutral(value: unknown): boolean {
  if (value === null || value === undefined) return true;
  if (typeof value !== "object") return false;
  const entries = Object.entries(value);
  return entries.length === 0 || (value as Record<string, unknown>).format === "dense";
}

function parseGroup(name: string, group: z.output<typeof groupSchema>): Scheme[] {
  const path = `config_groups.${name}`;
  const { weights, input_activations: activations, targets } = group;
  if (weights == null) throw unsupported(`${path}.weights`, weights ?? null, "only weights are served quantised");
  if (group.output_activations != null) {
    throw unsupported(`${path}.output_activations`, group.output_activations, "only weights are served quantised");
  }
  checkWeights(`${path}.weights`, weights);
  const quantisesActivations = weights.type === "int" && activations != null;
  if (quantisesActivations) checkActivations(path, weights, activations);
  return targets.map((target) => {
    const isClass = !target.startsWith("re:") && !target.includes(".") && /^[A-Z]/.test(target);
    const pattern = target.startsWith("re:") ? compilePattern(`${path}.targets`, target.slice(3)) : null;
    return {
      name,
      isClass,
      matches: (module) => isClass || (pattern === null ? module === target : pattern.test(module)),
      weights,
      quantisesActivations,
    };
  });
}

function checkWeights(path: string, { num_bits: bits, type, strategy, group_size: groupSize }: Arguments): void {
  if (type === "int" && bits !== 4 && bits !== 8) {
    throw unsupported(`${path}.num_bits`, bits, "integers are served in 4 and 8 bits");
  }
  if (type === "float" && bits !== 8) {
    throw unsupported(`${path}.num_bits`, bits, "floating point numbers are served in 8 bits");
  }
  if (type !== "int" && type !== "float") throw unsupported(`${path}.type`, type, "served are int and float");
  const strategies = type === "int" ? ["group", "channel", "tensor"] : ["channel", "tensor", "block"];
  const used = strategy ?? (groupSize == null ? "tensor" : "group");
  if (!strategies.includes(used)) {
    throw unsupported(`${path}.strategy`, used, `of type ${type}, served are ${strategies.join(", ")}`);
  }
}

/** W8A8: as our own, activations have 8 bits and a scale per token. */
function checkActivations(path: string, weights: Arguments, activations: Arguments): void {
  const isServed =
    activations.num_bits === 8 &&
    activations.type === "int" &&
    activations.symmetric &&
    activations.dynamic === true &&
    activations.strategy === "token";
  if (!isServed) {
    throw unsupported(
      `${path}.input_activations`,
      activations,
      "activations are served in 8 symmetric bits with a dynamic scale per token",
    );
  }
  if (weights.num_bits !== 8 || weights.strategy === "group" || !weights.symmetric) {
    throw unsupported(
      `${path}.weights`,
      weights,
      "with quantised activations, weights have 8 symmetric bits and a scale per channel",
    );
  }
}

function describeScheme({ weights, quantisesActivations, isClass, name }: Scheme): string {
  const groups = weights.group_size == null ? "" : ` in groups of ${weights.group_size}`;
  const kind = weights.type === "float" ? "FP8" : `W${weights.num_bits}A${quantisesActivations ? 8 : 16}`;
  return `${kind}${groups}${isClass ? "" : ` (${name})`}`;
}

/** A module's own name or pattern counts before its class, as in compressed-tensors. */
function schemeOf(schemes: readonly Scheme[], module: string): Scheme {
  const own = schemes.find(({ isClass, matches }) => !isClass && matches(module));
  const scheme = own ?? schemes.find(({ isClass }) => isClass);
  if (scheme !== undefined) return scheme;
  throw invalidCheckpoint(
    `The checkpoint has quantised weights of ${module}, but no group in quantization_config.config_groups targets it.`,
  );
}

async function locateIntegers(
  tensors: Tensors,
  module: string,
  codes: StoredTensor,
  { weights, quantisesActivations }: Scheme,
): Promise<LocatedMatrix> {
  const bits = weights.num_bits as 4 | 8;
  const isPacked = codes.elementType !== "int8";
  requireType(codes, isPacked ? ["int32"] : ["int8"]);
  if (!isPacked && bits !== 8) {
    throw invalidCheckpoint(`Tensor ${codes.name} is stored as int8; quantization_config says ${bits} bits.`);
  }
  const [outFeatures, width] = requireMatrix(codes);
  const perWord = isPacked ? 32 / bits : 1;
  const scales = requirePart(tensors, `${module}.weight_scale`, codes.name, floatTypes);
  const strategy = weights.strategy ?? (weights.group_size == null ? "tensor" : "group");
  // The number of inputs follows from the groups; it is a multiple of what a word holds in every model.
  const inFeatures = width * perWord;
  const groupSize = strategy === "group" ? checkedGroupSize(module, weights.group_size ?? -1, inFeatures) : inFeatures;
  const numGroups = inFeatures / groupSize;
  const reason = `${codes.name} [${outFeatures}, ${width}] of ${bits} bits and groups of ${groupSize}`;
  const isSingle = strategy === "tensor" && scales.shape.reduce((product, size) => product * size, 1) === 1;
  if (!isSingle) requireShape(scales, [outFeatures, numGroups], reason);
  return {
    shape: [outFeatures, inFeatures],
    matrix: {
      kind: "grouped",
      bits,
      groupSize,
      packing: isPacked ? "compressed-tensors" : "int8",
      codes,
      scales,
      zeroPoints: weights.symmetric
        ? null
        : requireZeroPoints(tensors, module, codes, [outFeatures, numGroups, 32 / bits]),
      hasLowZeroPoints: false,
      columnOrder: await columnOrderOf(tensors, module, [inFeatures, groupSize], reason),
      quantisesActivations,
    },
  };
}

/** Packed along the outputs, or int8 in older files. */
function requireZeroPoints(
  tensors: Tensors,
  module: string,
  codes: StoredTensor,
  [outFeatures, numGroups, perWord]: readonly [number, number, number],
): StoredTensor {
  const zeroPoints = requirePart(tensors, `${module}.weight_zero_point`, codes.name, ["int32", "int8"]);
  const rows = zeroPoints.elementType === "int32" ? Math.ceil(outFeatures / perWord) : outFeatures;
  requireShape(zeroPoints, [rows, numGroups], `${outFeatures} outputs and ${numGroups} groups`);
  return zeroPoints;
}

async function columnOrderOf(
  tensors: Tensors,
  module: string,
  [inFeatures, groupSize]: readonly [number, number],
  reason: string,
): Promise<Int32Array | null> {
  const groups = tensors.get(`${module}.weight_g_idx`);
  if (groups === undefined) return null;
  requireType(groups, ["int32"]);
  requireShape(groups, [inFeatures], reason);
  return readColumnOrder(groups, groupSize);
}

function locateFloat8(tensors: Tensors, module: string, codes: StoredTensor, { weights }: Scheme): LocatedMatrix {
  const [outFeatures, inFeatures] = requireMatrix(codes);
  const scales = requirePart(tensors, `${module}.weight_scale`, codes.name, floatTypes);
  const blockShape = blockShapeOf(module, weights, [outFeatures, inFeatures]);
  requireScales(scales, [outFeatures, inFeatures], blockShape);
  return { shape: [outFeatures, inFeatures], matrix: { kind: "float8", codes, scales, blockShape } };
}

function blockShapeOf(
  module: string,
  { strategy, block_structure: structure }: Arguments,
  [outFeatures, inFeatures]: readonly [number, number],
): readonly [number, number] {
  if (strategy === "channel") return [1, inFeatures];
  if (strategy !== "block") return [outFeatures, inFeatures];
  // Older files have "128x128".
  const sizes = typeof structure === "string" ? structure.split("x").map(Number) : structure;
  if (isBlockShape(sizes)) return sizes;
  throw unsupported("config_groups.weights.block_structure", structure ?? null, `${module} needs two sizes`);
}

export function isBlockShape(value: unknown): value is readonly [number, number] {
  return Array.isArray(value) && value.length === 2 && value.every((size) => Number.isSafeInteger(size) && size > 0);
}

/** @throws EngineError `invalid_checkpoint` if there is not one scale for each block. */
export function requireScales(
  scales: StoredTensor,
  [outFeatures, inFeatures]: readonly [number, number],
  [rows, columns]: readonly [number, number],
): void {
  const expected = [Math.ceil(outFeatures / rows), Math.ceil(inFeatures / columns)];
  const isFlat = scales.shape.filter((size) => size !== 1).every((size) => size === expected[0]! * expected[1]!);
  const numScales = scales.shape.reduce((product, size) => product * size, 1);
  if (isFlat && numScales === expected[0]! * expected[1]! && (expected[0] === 1 || expected[1] === 1)) return;
  requireShape(scales, expected, `${outFeatures} outputs, ${inFeatures} inputs and blocks of ${rows} x ${columns}`);
}
