/** AWQ in AutoAWQ's "gemm" layout. */
import { z } from "zod";

import type { StoredTensor } from "../stored-tensor.ts";
import {
  checkedGroupSize,
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

const BITS = 4;
const PER_WORD = 32 / BITS;

/** `modules_to_not_convert` is not read: a module is quantised if the files have its `qweight`. */
const fieldsSchema = z.looseObject({
  bits: z.int(),
  group_size: groupSizeField,
  version: z.string().nullish(),
  /** GPTQModel's and transformers 5's names of the version. */
  checkpoint_format: z.string().nullish(),
  format: z.string().nullish(),
});
const layoutFields = ["version", "checkpoint_format", "format"] as const;

export function parseAwq(json: unknown): Quantisation {
  const fields = parseQuantisationFields(fieldsSchema, json);
  if (fields.bits !== BITS) throw unsupported("bits", fields.bits, `awq is served in ${BITS} bits`);
  for (const field of layoutFields) {
    const layout = fields[field] ?? "gemm";
    if (layout.toLowerCase() !== "gemm") throw unsupported(field, layout, 'awq is served in the layout "gemm"');
  }
  return {
    description: `awq, ${BITS} bits in groups of ${fields.group_size}`,
    keepsIntegers: true,
    suffixes: ["qweight", "qzeros", "scales"],
    async locate(tensors) {
      const located = new Map<string, LocatedMatrix>();
      for (const [module, codes] of modulesWith(tensors, "qweight")) {
        located.set(module, locateAwq(tensors, module, codes, fields.group_size));
      }
      return located;
    },
  };
}

/** @throws EngineError `invalid_checkpoint` for a tensor that is missing, or of another type or shape. */
export function locateAwq(tensors: Tensors, module: string, codes: StoredTensor, size: number): LocatedMatrix {
  requireType(codes, ["int32"]);
  const [inFeatures, numWords] = requireMatrix(codes);
  const outFeatures = numWords * PER_WORD;
  const groupSize = checkedGroupSize(module, size, inFeatures);
  const numGroups = inFeatures / groupSize;
  const reason = `${codes.name} [${inFeatures}, ${numWords}] in awq's layout and groups of ${groupSize}`;
  const scales = requirePart(tensors, `${module}.scales`, codes.name, floatTypes);
  requireShape(scales, [numGroups, outFeatures], reason);
  const zeroPoints = requirePart(tensors, `${module}.qzeros`, codes.name, ["int32"]);
  requireShape(zeroPoints, [numGroups, numWords], reason);
  return {
    shape: [outFeatures, inFeatures],
    matrix: {
      kind: "grouped",
      bits: BITS,
      groupSize,
      packing: "awq",
      codes,
      scales,
      zeroPoints,
      hasLowZeroPoints: false,
      columnOrder: null,
      quantisesActivations: false,
    },
  };
}
