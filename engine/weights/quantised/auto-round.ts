/** Intel's AutoRound, which packs integers like GPTQ or like AWQ. */
import { z } from "zod";

import type { StoredTensor } from "../stored-tensor.ts";
import { locateAwq } from "./awq.ts";
import { locateGptq } from "./gptq.ts";
import {
  floatTypes,
  groupSizeField,
  invalidCheckpoint,
  modulesWith,
  parseQuantisationFields,
  requireMatrix,
  requirePart,
  unsupported,
  type LocatedMatrix,
  type Quantisation,
  type Tensors,
} from "./quantisation.ts";

/**
 * `extra_config` and lists of modules are not read: bits and groups of a module follow from the shapes of its tensors,
 * and modules without codes are not quantised.
 */
const fieldsSchema = z.looseObject({
  bits: z.int(),
  data_type: z.string().default("int"),
  act_bits: z.int().nullish(),
  packing_format: z.string().default("auto_round:auto_gptq"),
  rotation_config: z.unknown().optional(),
});

/** Activations of as many bits are floats. */
const FLOAT_BITS = 16;

const WORD_BITS = 32;

type Packing = "awq" | "gptq" | "gptq_v2";

/** By the name in the file. Zero points are stored as they are unless it is GPTQ's. */
const packings: Readonly<Record<string, Packing>> = {
  "auto_round:auto_gptq": "gptq",
  "auto_round:auto_awq": "awq",
  "auto_round:gptqmodel": "gptq_v2",
  "auto_round:exllamav2": "gptq_v2",
  auto_round: "gptq_v2",
};

export function parseAutoRound(json: unknown): Quantisation {
  const fields = parseQuantisationFields(fieldsSchema, json);
  const { packing_format: format, data_type: type, act_bits: activationBits, rotation_config: rotation } = fields;
  if (type !== "int") throw unsupported("data_type", type, "auto-round is served with integers");
  if (activationBits != null && activationBits < FLOAT_BITS) {
    throw unsupported("act_bits", activationBits, "only weights are served quantised");
  }
  if (rotation !== undefined && rotation !== null) {
    throw unsupported("rotation_config", rotation, "weights are served as they are");
  }
  const packing = Object.hasOwn(packings, format) ? packings[format] : undefined;
  if (packing === undefined) {
    throw unsupported("packing_format", format, `served are ${Object.keys(packings).join(", ")}`);
  }
  return {
    description: `auto-round, ${fields.bits} bits`,
    keepsIntegers: true,
    suffixes: ["qweight", "qzeros", "scales", "g_idx"],
    async locate(tensors) {
      const located = new Map<string, LocatedMatrix>();
      for (const [module, codes] of modulesWith(tensors, "qweight")) {
        located.set(module, await locate[packing](tensors, module, codes));
      }
      return located;
    },
  };
}

type Locate = (tensors: Tensors, module: string, codes: StoredTensor) => LocatedMatrix | Promise<LocatedMatrix>;

const locate: Readonly<Record<Packing, Locate>> = {
  awq(tensors, module, codes) {
    const [inFeatures] = requireMatrix(codes);
    return locateAwq(tensors, module, codes, groupSizeOf(tensors, module, codes, inFeatures));
  },
  gptq: (tensors, module, codes) => locateAsGptq(tensors, module, codes, true),
  gptq_v2: (tensors, module, codes) => locateAsGptq(tensors, module, codes, false),
};

function locateAsGptq(
  tensors: Tensors,
  module: string,
  codes: StoredTensor,
  hasLowZeroPoints: boolean,
): Promise<LocatedMatrix> {
  const [numWords, outFeatures] = requireMatrix(codes);
  const zeroPoints = requirePart(tensors, `${module}.qzeros`, codes.name, ["int32"]);
  const bits = (WORD_BITS * requireMatrix(zeroPoints)[1]) / outFeatures;
  if (bits !== 4 && bits !== 8) {
    throw invalidCheckpoint(`${codes.name} has ${bits} bits by the shape of ${zeroPoints.name}; 4 and 8 are served.`);
  }
  const groupSize = groupSizeOf(tensors, module, codes, (numWords * WORD_BITS) / bits);
  const settings = { bits, groupSize, isActOrdered: false } as const;
  return locateGptq(tensors, module, codes, settings, hasLowZeroPoints);
}

/** @throws EngineError `invalid_checkpoint` if the scales do not divide the inputs into groups that are served. */
function groupSizeOf(tensors: Tensors, module: string, codes: StoredTensor, inFeatures: number): number {
  const scales = requirePart(tensors, `${module}.scales`, codes.name, floatTypes);
  const [numGroups] = requireMatrix(scales);
  const groupSize = inFeatures / numGroups;
  if (numGroups === 1 || groupSizeField.safeParse(groupSize).success) return groupSize;
  throw invalidCheckpoint(
    `Tensor ${scales.name} has ${numGroups} groups for ${inFeatures} inputs; the size of a group is a multiple of 16.`,
  );
}
