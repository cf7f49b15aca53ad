/** NVIDIA's Model Optimizer: FP8, MXFP8 and NVFP4, which the tensors of a module tell apart. */
import { z } from "zod";

import type { StoredTensor } from "../stored-tensor.ts";
import { locateFloat4 } from "./float4.ts";
import { locateFloat8 } from "./float8.ts";
import {
  invalidCheckpoint,
  modulesWith,
  parseQuantisationFields,
  requirePart,
  unsupported,
  type LocatedMatrix,
  type Quantisation,
  type Tensors,
} from "./quantisation.ts";

/** `ignore`, groups and lists of layers are not read: the files have scales of the modules that are quantised. */
const fieldsSchema = z.looseObject({ quant_algo: z.string() });
/** Older versions have the fields below `quantization`. */
const olderSchema = z.looseObject({ quantization: z.looseObject({}) });

const servedAlgorithms: readonly string[] = [
  "FP8",
  "FP8_PER_CHANNEL_PER_TOKEN",
  "FP8_PB_WO",
  "MXFP8",
  "NVFP4",
  "W4A16_NVFP4",
  "W4A8_NVFP4_FP8",
  "MIXED_PRECISION",
];

const NVFP4_BLOCK = 16;
const MXFP8_BLOCK = 32;
const FP8_BLOCK = 128;

type Shape = readonly [number, number];

export function parseModelOpt(json: unknown): Quantisation {
  const fields = olderSchema.safeParse(json).data?.quantization ?? json;
  const { quant_algo: algorithm } = parseQuantisationFields(fieldsSchema, fields);
  if (!servedAlgorithms.includes(algorithm.toUpperCase())) {
    throw unsupported("quant_algo", algorithm, `served are ${servedAlgorithms.join(", ")}`);
  }
  return {
    description: `modelopt, ${algorithm}`,
    keepsIntegers: false,
    suffixes: ["weight_scale", "weight_scale_2"],
    async locate(tensors) {
      const located = new Map<string, LocatedMatrix>();
      for (const [module, scales] of modulesWith(tensors, "weight_scale")) {
        refuseOtherFactors(tensors, module);
        const codes = requirePart(tensors, `${module}.weight`, scales.name, ["float8e4m3", "uint8"]);
        located.set(module, locateFloats(tensors, module, codes));
      }
      return located;
    },
  };
}

function locateFloats(tensors: Tensors, module: string, codes: StoredTensor): LocatedMatrix {
  if (codes.elementType === "float8e4m3") return locateFloat8(tensors, module, codes, blockShapeOf);
  const common = { suffix: "weight_scale_2", isDivisor: false };
  return locateFloat4(tensors, module, codes, { blockSize: NVFP4_BLOCK, common });
}

/** A scale of the matrix, of each output (FP8), of 32 inputs (MXFP8), or of a block. */
function blockShapeOf([outFeatures, inFeatures]: Shape, { elementType, shape }: StoredTensor): Shape {
  if (elementType === "uint8" || elementType === "float8e8m0") return [1, MXFP8_BLOCK];
  const numScales = shape.reduce((product, size) => product * size, 1);
  if (numScales === 1) return [outFeatures, inFeatures];
  return numScales === outFeatures ? [1, inFeatures] : [FP8_BLOCK, FP8_BLOCK];
}

/** Factors of inputs, and low-rank residuals: weights without them would be others. */
function refuseOtherFactors(tensors: Tensors, module: string): void {
  for (const part of ["pre_quant_scale", "svdquant_lora_a"]) {
    const name = `${module}.${part}`;
    if (tensors.has(name)) throw invalidCheckpoint(`The checkpoint has ${name}, which is not supported.`);
  }
}
