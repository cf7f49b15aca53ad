/** bitsandbytes: NF4 and FP4 with a codebook, and the 8 bits of LLM.int8(). */
import { z } from "zod";

import { EngineError } from "../../contract/errors.ts";
import { readBySchema, describeProblem } from "../../schema-problem.ts";
import type { StoredTensor } from "../stored-tensor.ts";
import { readTensor } from "./column-order.ts";
import {
  invalidCheckpoint,
  modulesWith,
  parseQuantisationFields,
  requireMatrix,
  requirePart,
  requireShape,
  unsupported,
  type LocatedMatrix,
  type Quantisation,
  type Tensors,
} from "./quantisation.ts";

/** Lists of modules are not read: a module is quantised if the files have its scales. */
const fieldsSchema = z.looseObject({
  load_in_4bit: z.boolean().default(false),
  load_in_8bit: z.boolean().default(false),
  bnb_4bit_quant_storage: z.string().default("uint8"),
});

const stateSchema = z.looseObject({
  blocksize: z.int().positive(),
  shape: z.tuple([z.int().positive(), z.int().positive()]),
  nested_blocksize: z.int().positive().optional(),
  nested_offset: z.number().optional(),
});

/** A few numbers as JSON. */
const MAX_STATE_BYTES = 4096;
const stateNames = ["nf4", "fp4"] as const;
const NUM_CODES = 16;
const ROW_FORMAT = 0;
const NUM_NESTED_CODES = 256;

export function parseBitsandbytes(json: unknown): Quantisation {
  const fields = parseQuantisationFields(fieldsSchema, json);
  if (fields.load_in_4bit === fields.load_in_8bit) {
    throw unsupported("load_in_4bit", fields.load_in_4bit, "either load_in_4bit or load_in_8bit is true");
  }
  if (fields.load_in_8bit) {
    return {
      description: "bitsandbytes, 8 bits",
      keepsIntegers: false,
      suffixes: ["SCB"],
      async locate(tensors) {
        const located = new Map<string, LocatedMatrix>();
        for (const [module, scales] of modulesWith(tensors, "SCB")) {
          await requireRowFormat(tensors, module);
          located.set(module, locateInt8(tensors, module, scales));
        }
        return located;
      },
    };
  }
  if (fields.bnb_4bit_quant_storage !== "uint8") {
    throw unsupported("bnb_4bit_quant_storage", fields.bnb_4bit_quant_storage, "codes are stored as uint8");
  }
  return {
    description: "bitsandbytes, 4 bits",
    keepsIntegers: false,
    suffixes: ["absmax", "quant_map"],
    async locate(tensors) {
      const located = new Map<string, LocatedMatrix>();
      // The scales of a module belong to its tensor `weight`.
      for (const [weightName, scales] of modulesWith(tensors, "absmax")) {
        located.set(weightName.replace(/\.weight$/, ""), await locateCodebook(tensors, weightName, scales));
      }
      return located;
    },
  };
}

/**
 * Old versions could write codes in the layout of a GPU's kernels. The number is that of bitsandbytes'
 * `LINEAR_8BIT_WEIGHTS_FORMAT_MAPPING`; files of the first versions do not have it.
 */
async function requireRowFormat(tensors: Tensors, module: string): Promise<void> {
  const tensor = tensors.get(`${module}.weight_format`);
  if (tensor === undefined) return;
  requirePart(tensors, tensor.name, module, ["uint8"]);
  if (tensor.byteLength !== 1) {
    throw invalidCheckpoint(`Tensor ${tensor.name} has ${tensor.byteLength} bytes; expected one number.`);
  }
  const [format] = await readTensor(tensor);
  if (format === ROW_FORMAT) return;
  throw new EngineError(
    "unsupported_model",
    `Tensor ${tensor.name} is ${format}: the codes of ${module} are in the layout of a GPU. Only rows (${ROW_FORMAT}) are supported; save the checkpoint again with a recent bitsandbytes.`,
  );
}

function locateInt8(tensors: Tensors, module: string, scales: StoredTensor): LocatedMatrix {
  const codes = requirePart(tensors, `${module}.weight`, scales.name, ["int8"]);
  requirePart(tensors, scales.name, codes.name, ["float32"]);
  const [outFeatures, inFeatures] = requireMatrix(codes);
  requireShape(scales, [outFeatures], `${codes.name} [${outFeatures}, ${inFeatures}]`);
  return { shape: [outFeatures, inFeatures], matrix: { kind: "int8-rows", codes, scales } };
}

async function locateCodebook(tensors: Tensors, name: string, scales: StoredTensor): Promise<LocatedMatrix> {
  const codes = requirePart(tensors, name, scales.name, ["uint8"]);
  const state = await readState(tensors, name);
  const [outFeatures, inFeatures] = state.shape;
  const numElements = outFeatures * inFeatures;
  const numBlocks = Math.ceil(numElements / state.blocksize);
  const reason = `${name} [${outFeatures}, ${inFeatures}] and blocks of ${state.blocksize}`;
  requireShape(codes, [Math.ceil(numElements / 2), 1], reason);
  requirePart(tensors, scales.name, name, ["uint8", "float32"]);
  requireShape(scales, [numBlocks], reason);
  const codebook = requirePart(tensors, `${name}.quant_map`, name, ["float32"]);
  requireShape(codebook, [NUM_CODES], "codes of 4 bits");
  return {
    shape: [outFeatures, inFeatures],
    matrix: {
      kind: "codebook",
      codes,
      codebook,
      blockSize: state.blocksize,
      scales,
      nested: scales.elementType === "uint8" ? locateNested(tensors, name, state, numBlocks) : null,
    },
  };
}

function locateNested(
  tensors: Tensors,
  name: string,
  { nested_blocksize: blockSize, nested_offset: offset }: z.output<typeof stateSchema>,
  numBlocks: number,
): { codebook: StoredTensor; blockSize: number; scales: StoredTensor; offset: number } {
  if (blockSize === undefined || offset === undefined) {
    throw invalidCheckpoint(
      `The state of ${name} has no nested_blocksize or nested_offset, which its uint8 scales need.`,
    );
  }
  const codebook = requirePart(tensors, `${name}.nested_quant_map`, name, ["float32"]);
  requireShape(codebook, [NUM_NESTED_CODES], "scales of 8 bits");
  const scales = requirePart(tensors, `${name}.nested_absmax`, name, ["float32"]);
  requireShape(scales, [Math.ceil(numBlocks / blockSize)], `${numBlocks} scales in blocks of ${blockSize}`);
  return { codebook, blockSize, scales, offset };
}

async function readState(tensors: Tensors, name: string): Promise<z.output<typeof stateSchema>> {
  const stateName = stateNames
    .map((kind) => `${name}.quant_state.bitsandbytes__${kind}`)
    .find((one) => tensors.has(one));
  if (stateName === undefined) {
    throw invalidCheckpoint(
      `The checkpoint has ${name}.absmax, but no tensor ${name}.quant_state.bitsandbytes__nf4 to dequantise it.`,
    );
  }
  const tensor = requirePart(tensors, stateName, name, ["uint8"]);
  if (tensor.byteLength > MAX_STATE_BYTES) {
    throw invalidCheckpoint(`Tensor ${stateName} has ${tensor.byteLength} bytes; the limit is ${MAX_STATE_BYTES}.`);
  }
  let json: unknown;
  try {
    json = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(await readTensor(tensor)));
  } catch (cause) {
    throw invalidCheckpoint(`Tensor ${stateName} is not JSON (${String(cause)}).`);
  }
  const result = readBySchema(stateSchema, json);
  if (result.isValid) return result.value;
  throw invalidCheckpoint(`Tensor ${stateName}: ${describeProblem(result, "")}.`);
}
