/** GPTQ as AutoGPTQ and GPTQModel write it, in 4 and 8 bits, with act-order and settings by module. */
import { z } from "zod";

import type { StoredTensor } from "../stored-tensor.ts";
import { readColumnOrder } from "./column-order.ts";
import {
  checkedGroupSize,
  compilePattern,
  floatTypes,
  groupSizeField,
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

/** Zero points in `gptq` are one lower than in `gptq_v2`. */
const checkpointFormats: readonly string[] = ["gptq", "gptq_v2"];

const overrideSchema = z.looseObject({
  bits: z.int().optional(),
  group_size: groupSizeField.optional(),
  desc_act: z.boolean().optional(),
});

/** `sym`, `static_groups`, `lm_head` and the like decide how codes were found, not how they are read. */
const fieldsSchema = z.looseObject({
  bits: z.int(),
  group_size: groupSizeField,
  desc_act: z.boolean().default(false),
  checkpoint_format: z.string().nullish(),
  format: z.string().nullish(),
  /** GPTQModel's settings by module: `+:` (default) or `-:` and a regular expression. */
  dynamic: z.record(z.string(), overrideSchema.or(z.record(z.string(), z.unknown()))).nullish(),
  pack_dtype: z.string().default("int32"),
});

export interface GptqSettings {
  readonly bits: 4 | 8;
  readonly groupSize: number;
  readonly isActOrdered: boolean;
}

export function parseGptq(json: unknown): Quantisation {
  const fields = parseQuantisationFields(fieldsSchema, json);
  const formatField = fields.checkpoint_format == null && fields.format != null ? "format" : "checkpoint_format";
  const format = fields[formatField] ?? "gptq";
  if (!checkpointFormats.includes(format)) {
    throw unsupported(formatField, format, `gptq is served as ${checkpointFormats.join(" and ")}`);
  }
  if (fields.pack_dtype !== "int32") throw unsupported("pack_dtype", fields.pack_dtype, "codes are packed into int32");
  const general: GptqSettings = {
    bits: servedBits("bits", fields.bits),
    groupSize: fields.group_size,
    isActOrdered: fields.desc_act,
  };
  const overrides = Object.entries(fields.dynamic ?? {})
    .filter(([rule]) => !rule.startsWith("-:"))
    .map(([rule, values]) => parseOverride(rule, values, general));

  return {
    description: `gptq, ${general.bits} bits in groups of ${general.groupSize}${general.isActOrdered ? ", act-order" : ""}`,
    keepsIntegers: true,
    suffixes: ["qweight", "qzeros", "scales", "g_idx"],
    async locate(tensors) {
      const located = new Map<string, LocatedMatrix>();
      for (const [module, codes] of modulesWith(tensors, "qweight")) {
        // The first rule that matches counts, as in GPTQModel.
        const settings = overrides.find(({ pattern }) => pattern.test(module))?.settings ?? general;
        located.set(module, await locateGptq(tensors, module, codes, settings, format === "gptq"));
      }
      return located;
    },
  };
}

/**
 * @param hasLowZeroPoints Whether zero points are stored one too low.
 * @throws EngineError `invalid_checkpoint` for a tensor that is missing, or of another type or shape.
 */
export async function locateGptq(
  tensors: Tensors,
  module: string,
  codes: StoredTensor,
  { bits, groupSize: size, isActOrdered }: GptqSettings,
  hasLowZeroPoints: boolean,
): Promise<LocatedMatrix> {
  const perWord = 32 / bits;
  requireType(codes, ["int32"]);
  const [numWords, outFeatures] = requireMatrix(codes);
  const inFeatures = numWords * perWord;
  const groupSize = checkedGroupSize(module, size, inFeatures);
  const numGroups = inFeatures / groupSize;
  const reason = `${codes.name} [${numWords}, ${outFeatures}] in gptq's layout of ${bits} bits and groups of ${groupSize}`;
  const scales = requirePart(tensors, `${module}.scales`, codes.name, floatTypes);
  requireShape(scales, [numGroups, outFeatures], reason);
  const zeroPoints = requirePart(tensors, `${module}.qzeros`, codes.name, ["int32"]);
  requireShape(zeroPoints, [numGroups, Math.ceil(outFeatures / perWord)], reason);
  // Some writers leave out the groups where they are successive.
  const needsGroups = isActOrdered || tensors.has(`${module}.g_idx`);
  const groups = needsGroups ? requirePart(tensors, `${module}.g_idx`, codes.name, ["int32"]) : null;
  if (groups !== null) requireShape(groups, [inFeatures], reason);
  return {
    shape: [outFeatures, inFeatures],
    matrix: {
      kind: "grouped",
      bits,
      groupSize,
      packing: "gptq",
      codes,
      scales,
      zeroPoints,
      hasLowZeroPoints,
      columnOrder: groups === null ? null : await readColumnOrder(groups, groupSize),
      quantisesActivations: false,
    },
  };
}

function parseOverride(
  rule: string,
  json: unknown,
  general: GptqSettings,
): { readonly pattern: RegExp; readonly settings: GptqSettings } {
  const values = parseQuantisationFields(overrideSchema, json);
  const path = `dynamic[${JSON.stringify(rule)}]`;
  return {
    pattern: compilePattern(path, rule.replace(/^\+:/, "")),
    settings: {
      bits: values.bits === undefined ? general.bits : servedBits(`${path}.bits`, values.bits),
      groupSize: values.group_size ?? general.groupSize,
      isActOrdered: values.desc_act ?? general.isActOrdered,
    },
  };
}

function servedBits(field: string, bits: number): 4 | 8 {
  if (bits === 4 || bits === 8) return bits;
  throw unsupported(field, bits, "gptq is served in 4 and 8 bits");
}
