/** FP8 (E4M3) as transformers, DeepSeek and AutoFP8 write it: a scale per matrix or per block. */
import { z } from "zod";

import { isBlockShape, requireScales } from "./float8.ts";
import { fusedScaleSuffixes, locateFusedExperts } from "./fused-fp8-experts.ts";
import {
  floatTypes,
  invalidCheckpoint,
  modulesWith,
  parseQuantisationFields,
  requireMatrix,
  requirePart,
  unsupported,
  type LocatedMatrix,
  type Quantisation,
} from "./quantisation.ts";

/**
 * `activation_scheme` and the scales of activations are not read: activations keep the type of the model.
 * `modules_to_not_convert` is not read either: a module is quantised if the files have its scale.
 */
const fieldsSchema = z.looseObject({
  weight_block_size: z.unknown().optional(),
  fmt: z.string().nullish(),
});

export function parseFp8(json: unknown): Quantisation {
  const fields = parseQuantisationFields(fieldsSchema, json);
  const { weight_block_size: blockSize = null, fmt } = fields;
  if (blockSize !== null && !isBlockShape(blockSize)) {
    throw unsupported("weight_block_size", blockSize, "expected the rows and the columns of a block");
  }
  if (fmt != null && fmt !== "e4m3") throw unsupported("fmt", fmt, "fp8 is served as e4m3");
  return {
    description: `fp8, ${blockSize === null ? "a scale per matrix" : `blocks of ${blockSize.join(" x ")}`}`,
    keepsIntegers: false,
    suffixes: ["weight_scale", "weight_scale_inv", ...fusedScaleSuffixes],
    async locate(tensors) {
      const located = new Map<string, LocatedMatrix>(locateFusedExperts(tensors, blockSize));
      for (const suffix of ["weight_scale", "weight_scale_inv"]) {
        for (const [module, scales] of modulesWith(tensors, suffix)) {
          const codes = requirePart(tensors, `${module}.weight`, scales.name, ["float8e4m3"]);
          const [outFeatures, inFeatures] = requireMatrix(codes);
          const shape = [outFeatures, inFeatures] as const;
          requirePart(tensors, scales.name, codes.name, floatTypes);
          const blockShape = blockSize ?? (countOf(scales.shape) === 1 ? shape : ([1, inFeatures] as const));
          requireScales(scales, shape, blockShape);
          if (located.has(module)) {
            throw invalidCheckpoint(`The checkpoint has both ${module}.weight_scale and ${scales.name}.`);
          }
          located.set(module, { shape, matrix: { kind: "float8", codes, scales, blockShape } });
        }
      }
      return located;
    },
  };
}

function countOf(shape: readonly number[]): number {
  return shape.reduce((product, size) => product * size, 1);
}
