/** Reads `quantization_config` and shows quantised matrices under the names that unquantised ones have. */
import { isDeepStrictEqual } from "node:util";
import { z } from "zod";

import { EngineError } from "../../contract/errors.ts";
import { excerpt } from "../../excerpt.ts";
import type { StoredTensor } from "../stored-tensor.ts";
import { parseAutoRound } from "./auto-round.ts";
import { parseAwq } from "./awq.ts";
import { parseBitsandbytes } from "./bitsandbytes.ts";
import { parseCompressedTensors } from "./compressed-tensors.ts";
import { parseFp8 } from "./fp8.ts";
import { parseGptq } from "./gptq.ts";
import { parseModelOpt } from "./modelopt.ts";
import { invalidCheckpoint, partSuffixes, type Quantisation, type Tensors } from "./quantisation.ts";

/** By `quant_method`. */
const methods: Readonly<Record<string, (fields: unknown) => Quantisation>> = {
  awq: parseAwq,
  gptq: parseGptq,
  "compressed-tensors": parseCompressedTensors,
  fp8: parseFp8,
  bitsandbytes: parseBitsandbytes,
  modelopt: parseModelOpt,
  "auto-round": parseAutoRound,
};

/** vLLM's names for single algorithms of Model Optimizer, which some uploads have. */
const otherNames: Readonly<Record<string, string>> = {
  modelopt_fp4: "modelopt",
  modelopt_mixed: "modelopt",
  modelopt_mxfp8: "modelopt",
};

const configSchema = z
  .looseObject({ quantization_config: z.unknown(), compression_config: z.unknown(), text_config: z.unknown() })
  .partial();
const methodSchema = z.looseObject({ quant_method: z.unknown() }).partial();

/**
 * @param config The content of config.json.
 * @returns Null for a checkpoint that is not quantised.
 * @throws EngineError `unsupported_model` for a method or a setting that is not served, `invalid_checkpoint` for fields
 * of a wrong type; both name the field.
 */
export function readQuantisation(config: unknown): Quantisation | null {
  const fields = quantisationFields(config);
  if (fields === null) return null;
  const { quant_method: named } = methodSchema.safeParse(fields).data ?? {};
  // bitsandbytes wrote its fields without a method at first.
  const isOldBitsandbytes = named === undefined && (fields as Record<string, unknown>).load_in_4bit !== undefined;
  const method = isOldBitsandbytes ? "bitsandbytes" : named;
  const parse = typeof method === "string" ? parserOf(method) : undefined;
  if (parse !== undefined) return parse(fields);
  throw new EngineError(
    "unsupported_model",
    `config.json: quantization_config.quant_method = ${excerpt(method ?? null)} is not supported: served are ` +
      `${Object.keys(methods).join(", ")}.`,
  );
}

function parserOf(method: string): ((fields: unknown) => Quantisation) | undefined {
  const name = Object.hasOwn(otherNames, method) ? otherNames[method]! : method;
  return Object.hasOwn(methods, name) ? methods[name] : undefined;
}

/**
 * Older versions of Model Optimizer say in a file of its own, `hf_quant_config.json`, how they have quantised.
 *
 * @param config The content of config.json.
 * @param file The content of that file; null if there is none.
 * @returns `config`, with the file's content as `quantization_config` if it has none.
 */
export function withQuantisationFile(config: unknown, file: unknown): unknown {
  const algorithm = fileSchema.safeParse(file).data?.quantization.quant_algo ?? null;
  if (algorithm === null || typeof config !== "object" || quantisationFields(config) !== null) return config;
  return { ...config, quantization_config: { ...(file as object), quant_method: "modelopt" } };
}

const fileSchema = z.looseObject({ quantization: z.looseObject({ quant_algo: z.unknown() }) });

/**
 * Some versions of transformers write the fields into `text_config` too, or only there.
 *
 * @throws EngineError `unsupported_model` if both places differ.
 */
function quantisationFields(config: unknown): unknown {
  const { quantization_config: current, compression_config: older, text_config: text } = fieldsOf(config);
  const own = current ?? older ?? null;
  const ofText = fieldsOf(text).quantization_config ?? null;
  if (own !== null && ofText !== null && !isDeepStrictEqual(own, ofText)) {
    throw new EngineError(
      "unsupported_model",
      `config.json: text_config.quantization_config = ${excerpt(ofText)} is not supported: it differs from ` +
        `quantization_config, ${excerpt(own)}.`,
    );
  }
  return own ?? ofText;
}

function fieldsOf(config: unknown): z.output<typeof configSchema> {
  return configSchema.safeParse(config).data ?? {};
}

/** config.json as families read it: quantised matrices look to them like all others. */
export function withoutQuantisation(config: unknown): unknown {
  if (typeof config !== "object" || config === null) return config;
  const { quantization_config: _current, compression_config: _older, ...rest } = config as Record<string, unknown>;
  const { text_config: text } = rest;
  if (typeof text !== "object" || text === null || !("quantization_config" in text)) return rest;
  const { quantization_config: _ofText, ...textRest } = text;
  return { ...rest, text_config: textRest };
}

/**
 * The tensors of a checkpoint, with `{module}.weight` for each quantised matrix. Codes, scales and the like are left
 * out.
 *
 * @throws EngineError like `readQuantisation`; `invalid_checkpoint` for tensors that do not belong to the method, that
 *   are missing, or of another type or shape.
 */
export async function locateQuantised(config: unknown, tensors: Tensors): Promise<Tensors> {
  const quantisation = readQuantisation(config);
  refuseForeign(tensors, quantisation);
  if (quantisation === null) return tensors;
  const located = await quantisation.locate(tensors);
  if (located.size === 0) {
    throw invalidCheckpoint(
      `config.json names the quantisation "${quantisation.description}", but no tensor is quantised with it.`,
    );
  }
  const shown = new Map(tensors);
  for (const [module, { shape, matrix }] of located) {
    const name = `${module}.weight`;
    const { codes } = matrix;
    const own = tensors.get(name);
    if (own !== undefined && own !== codes) {
      throw invalidCheckpoint(`The checkpoint has both ${name} and ${codes.name}; only one of them can be the weight.`);
    }
    shown.set(name, { ...codes, name, shape, quantised: matrix } satisfies StoredTensor);
  }
  return shown;
}

/** @throws EngineError `invalid_checkpoint` for a tensor that another method wrote. */
function refuseForeign(tensors: Tensors, quantisation: Quantisation | null): void {
  for (const name of tensors.keys()) {
    const suffix = name.slice(name.lastIndexOf(".") + 1);
    if (!Object.hasOwn(partSuffixes, suffix) || quantisation?.suffixes.includes(suffix) === true) continue;
    const stated =
      quantisation === null
        ? "config.json has no quantization_config at its top level"
        : `config.json names the quantisation "${quantisation.description}"`;
    throw invalidCheckpoint(`Tensor ${name} is of a checkpoint quantised by ${partSuffixes[suffix]}, but ${stated}.`);
  }
}
