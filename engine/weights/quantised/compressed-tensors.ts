/** compressed-tensors, the format of LLM Compressor: packed and plain integers, and floats in 8 and 4 bits. */
import { z } from "zod";

import type { StoredTensor } from "../stored-tensor.ts";
import { readColumnOrder } from "./column-order.ts";
import {
  describeScheme,
  floatGroups,
  groupSchema,
  parseGroup,
  schemeOf,
  type Arguments,
  type Scheme,
} from "./compressed-schemes.ts";
import { locateFloat4, type Float4Options } from "./float4.ts";
import { isBlockShape, locateFloat8 } from "./float8.ts";
import {
  checkedGroupSize,
  floatTypes,
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

/**
 * `ignore` is not read: a module is quantised if the files have its codes. Nor is `kv_cache_scheme`: like activations, keys
 * and values may keep more bits than it asks for.
 */
const fieldsSchema = z.looseObject({
  format: z.string().nullish(),
  config_groups: z.record(z.string(), groupSchema),
  sparsity_config: z.unknown().optional(),
  transform_config: z.unknown().optional(),
});

/** Formats of weights in whole, see `CompressionFormat` of compressed-tensors. */
const servedFormats: readonly string[] = [
  "pack-quantized",
  "int-quantized",
  "float-quantized",
  "naive-quantized",
  "nvfp4-pack-quantized",
  "mxfp4-pack-quantized",
  "mxfp8-quantized",
  "mixed-precision",
];

export function parseCompressedTensors(json: unknown): Quantisation {
  const fields = parseQuantisationFields(fieldsSchema, json);
  if (fields.format != null && !servedFormats.includes(fields.format)) {
    throw unsupported("format", fields.format, `served are ${servedFormats.join(", ")}`);
  }
  for (const field of ["sparsity_config", "transform_config"] as const) {
    if (!isNeutral(fields[field])) throw unsupported(field, fields[field], "only weights are served quantised");
  }
  const schemes = Object.entries(fields.config_groups).flatMap(([name, group]) => parseGroup(name, group));
  return {
    description: `compressed-tensors, ${schemes.map(describeScheme).join(" and ")}`,
    keepsIntegers: schemes.some(({ weights }) => weights.type === "int"),
    suffixes: [
      "weight_packed",
      "weight_shape",
      "weight_scale",
      "weight_global_scale",
      "weight_zero_point",
      "weight_g_idx",
    ],
    async locate(tensors) {
      const located = new Map<string, LocatedMatrix>();
      for (const [module, codes] of modulesWith(tensors, "weight_packed")) {
        const scheme = schemeOf(schemes, module);
        const isFloat = scheme.weights.type === "float";
        located.set(
          module,
          isFloat
            ? locateFloat4(tensors, module, codes, float4Options(scheme.weights))
            : await locateIntegers(tensors, module, codes, scheme),
        );
      }
      for (const [module] of modulesWith(tensors, "weight_scale")) {
        if (located.has(module)) continue;
        const scheme = schemeOf(schemes, module);
        const isFloat = scheme.weights.type === "float";
        const expected = isFloat ? "float8e4m3" : "int8";
        const codes = requirePart(tensors, `${module}.weight`, `${module}.weight_scale`, [expected]);
        located.set(
          module,
          isFloat
            ? locateFloat8(tensors, module, codes, (shape) => blockShapeOf(module, scheme.weights, shape))
            : await locateIntegers(tensors, module, codes, scheme),
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

function float4Options({ strategy }: Arguments): Float4Options {
  if (strategy !== "tensor_group") return { blockSize: floatGroups.group!, common: null };
  return { blockSize: floatGroups.tensor_group!, common: { suffix: "weight_global_scale", isDivisor: true } };
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
        : requireZeroPoints(tensors, module, codes, { outFeatures, numGroups, perWord: 32 / bits, isSingle }),
      hasLowZeroPoints: false,
      columnOrder: await columnOrderOf(tensors, module, [inFeatures, groupSize], reason),
      quantisesActivations,
    },
  };
}

interface ZeroPointCounts {
  readonly outFeatures: number;
  readonly numGroups: number;
  readonly perWord: number;
  readonly isSingle: boolean;
}

/** Packed along the outputs, or int8 in older files. @param isSingle Whether the matrix may have one zero point. */
function requireZeroPoints(
  tensors: Tensors,
  module: string,
  codes: StoredTensor,
  { outFeatures, numGroups, perWord, isSingle }: ZeroPointCounts,
): StoredTensor {
  const zeroPoints = requirePart(tensors, `${module}.weight_zero_point`, codes.name, ["int32", "int8"]);
  if (isSingle && zeroPoints.byteLength === 1) return zeroPoints;
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

function blockShapeOf(
  module: string,
  { strategy, group_size: groupSize, block_structure: structure }: Arguments,
  [outFeatures, inFeatures]: readonly [number, number],
): readonly [number, number] {
  if (groupSize != null) return [1, groupSize];
  if (strategy === "channel") return [1, inFeatures];
  if (strategy !== "block") return [outFeatures, inFeatures];
  // Older files have "128x128".
  const sizes = typeof structure === "string" ? structure.split("x").map(Number) : structure;
  if (isBlockShape(sizes)) return sizes;
  throw unsupported("config_groups.weights.block_structure", structure ?? null, `${module} needs two sizes`);
}
