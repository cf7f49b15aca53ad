/** Reads a LoRA adapter, as PEFT saves it, beside the tensors of its base model. */
import { createHash } from "node:crypto";
import { join } from "node:path";

import { EngineError } from "../../contract/errors.ts";
import { describeError } from "../../excerpt.ts";
import { adapterConfigName, adapterWeightsName } from "../checkpoint-files.ts";
import type { Checkpoint } from "../checkpoint.ts";
import { hashFile } from "../file-hash.ts";
import { isFloat } from "../float-conversion.ts";
import { parsePythonJson } from "../python-json.ts";
import { readRegularFile } from "../regular-file.ts";
import { readSafetensorsHeader } from "../safetensors.ts";
import type { LowRankUpdate, StoredTensor } from "../stored-tensor.ts";
import { parseAdapterConfig, type AdapterConfig } from "./adapter-config.ts";
import { invalidAdapter, type AdapterOrigin } from "./adapter-origin.ts";

type Tensors = ReadonlyMap<string, StoredTensor>;

/** What an adapter changes, by the names of the checkpoint's tensors. */
export interface Adapter {
  readonly updates: ReadonlyMap<string, LowRankUpdate>;
  /** Tensors that take the place of the checkpoint's (`modules_to_save`, biases). */
  readonly wholes: Tensors;
  /** Hex SHA-256 of its configuration and weights. */
  contentHash(this: void, signal?: AbortSignal): Promise<string>;
}

export interface AdapterOptions {
  /** Stores hashes of files. */
  readonly cacheFolder: string;
}

/**
 * Names are those of modules in transformers, which may nest a model's parts in another way than the file does:
 * `model`, `language_model` and `vision_model` are left out where they are compared.
 *
 * @param folder With adapter_config.json and adapter_model.safetensors.
 * @throws EngineError `invalid_checkpoint` for an adapter that cannot be read, is of another kind, or has a part that the
 *   checkpoint lacks; `invalid_configuration` for a ready-made export.
 */
export async function readAdapter(
  checkpoint: Checkpoint,
  folder: string,
  { origin, cacheFolder }: AdapterOptions & { readonly origin: AdapterOrigin },
): Promise<Adapter> {
  if (checkpoint.onnxFileNames !== null) {
    throw new EngineError(
      "invalid_configuration",
      `${origin.label} needs safetensors files of its model; this model is a ready-made ONNX export.`,
      { setting: origin.setting },
    );
  }
  const configBytes = await readRegularFile(join(folder, adapterConfigName));
  if (configBytes === null) throw invalidAdapter(origin, `It has no ${adapterConfigName}.`);
  const config = parseAdapterConfig(parseJson(configBytes, origin), origin);
  const file = join(folder, adapterWeightsName);
  const stored = await readSafetensorsHeader(file);
  if (stored === null) throw invalidAdapter(origin, `It has no ${adapterWeightsName}.`);
  return {
    ...changes(checkpoint, stored, config, origin),
    async contentHash(signal) {
      const hash = createHash("sha256").update(configBytes);
      return hash.update(await hashFile(file, { cacheFolder, signal })).digest("hex");
    },
  };
}

/** Without the names of PEFT's own modules. */
function nameInModel(name: string): string {
  return name.replace(/^base_model\.model\./, "").replace(/\.base_layer\.(?=bias$)/, ".");
}

const matrixName = /^(.+)\.(lora_A|lora_B|lora_magnitude_vector)(?:\.default)?(?:\.weight)?$/;
/** Parts of other methods of PEFT, which would be taken for whole tensors. */
const otherPart = /\.(?:lora_|token_adapter\b|modules_to_save\b|original_module\b|trainable_tokens_)/;

interface AdapterPart {
  down?: StoredTensor;
  up?: StoredTensor;
  magnitudes?: StoredTensor;
}

function changes(
  checkpoint: Checkpoint,
  stored: Tensors,
  config: AdapterConfig,
  origin: AdapterOrigin,
): Pick<Adapter, "updates" | "wholes"> {
  const parts = new Map<string, AdapterPart>();
  const wholes = new Map<string, StoredTensor>();
  for (const [storedName, tensor] of stored) {
    const name = nameInModel(storedName);
    if (!isFloat(tensor.elementType))
      throw invalidAdapter(origin, `Its tensor ${storedName} is of type ${tensor.elementType}.`);
    const [, module, kind] = matrixName.exec(name) ?? [];
    if (module === undefined) {
      if (otherPart.test(name))
        throw invalidAdapter(origin, `Its tensor ${storedName} is of a kind that is not merged.`);
      wholes.set(name, tensor);
      continue;
    }
    const part = parts.get(module) ?? {};
    if (kind === "lora_A") part.down = tensor;
    else if (kind === "lora_B") part.up = tensor;
    else part.magnitudes = tensor;
    parts.set(module, part);
  }
  if (parts.size === 0 && wholes.size === 0) throw invalidAdapter(origin, "It changes no tensor.");

  const find = createFinder(checkpoint.tensors, origin);
  const updates = new Map<string, LowRankUpdate>();
  for (const [module, part] of parts) {
    const tensor = find(`${module}.weight`);
    updates.set(tensor.name, updateOf(module, part, tensor, { config, origin }));
  }
  const replaced = new Map<string, StoredTensor>();
  for (const [name, whole] of wholes) {
    const tensor = find(name);
    if (whole.shape.join() !== tensor.shape.join()) throw otherShape(whole, tensor, origin);
    if (/\bembed_tokens\.weight$/.test(name) && isTied(checkpoint)) {
      throw invalidAdapter(
        origin,
        `It has embeddings of its own (${name}), which this model shares with its output layer.`,
      );
    }
    replaced.set(tensor.name, { ...whole, name: tensor.name });
  }
  return { updates, wholes: replaced };
}

function updateOf(
  module: string,
  { down, up, magnitudes }: AdapterPart,
  tensor: StoredTensor,
  { config, origin }: { readonly config: AdapterConfig; readonly origin: AdapterOrigin },
): LowRankUpdate {
  if (down === undefined || up === undefined) {
    throw invalidAdapter(origin, `It has only one of the matrices lora_A and lora_B of ${module}.`);
  }
  const [rank, columns] = down.shape;
  const [rows] = up.shape;
  const isMatrix = tensor.shape.length === 2 && down.shape.length === 2 && up.shape.length === 2;
  if (!isMatrix || up.shape[1] !== rank) throw otherShape(up, down, origin);
  if (rows !== tensor.shape[0]) throw otherShape(up, tensor, origin);
  if (columns !== tensor.shape[1]) throw otherShape(down, tensor, origin);
  if (magnitudes !== undefined && magnitudes.shape.reduce((product, size) => product * size, 1) !== rows) {
    throw otherShape(magnitudes, tensor, origin);
  }
  return { down, up, scale: config.scaleOf(module, rank!), magnitudes: magnitudes ?? null };
}

/** Finds the checkpoint's tensor of a module: by its name, or by what is left of it without the names of containers. */
function createFinder(tensors: Tensors, origin: AdapterOrigin): (name: string) => StoredTensor {
  const byCore = new Map<string, StoredTensor[]>();
  for (const tensor of tensors.values()) {
    const core = coreOf(tensor.name);
    byCore.set(core, [...(byCore.get(core) ?? []), tensor]);
  }
  return (name) => {
    const exact = tensors.get(name);
    if (exact !== undefined) return exact;
    const [tensor, other] = byCore.get(coreOf(name)) ?? [];
    if (tensor === undefined) {
      throw invalidAdapter(origin, `It changes ${name}, which the model does not have. Is this its base model?`);
    }
    if (other !== undefined) {
      throw invalidAdapter(origin, `It changes ${name}, which can be ${tensor.name} or ${other.name} of the model.`);
    }
    return tensor;
  };
}

function coreOf(name: string): string {
  return name.replaceAll(/(?<=^|\.)(?:model|language_model|vision_model)\./g, "");
}

/** Whether the embeddings are the output layer too. */
function isTied({ tensors }: Checkpoint): boolean {
  return ![...tensors.keys()].some((name) => name.endsWith("lm_head.weight"));
}

function parseJson(bytes: Buffer, origin: AdapterOrigin): unknown {
  try {
    return parsePythonJson(bytes.toString("utf8"));
  } catch (cause) {
    throw invalidAdapter(origin, `Its ${adapterConfigName} is not JSON (${describeError(cause)}).`, cause);
  }
}

function otherShape(part: StoredTensor, tensor: StoredTensor, origin: AdapterOrigin): EngineError {
  return invalidAdapter(
    origin,
    `Its tensor ${part.name} [${part.shape.join(", ")}] does not go with ${tensor.name} [${tensor.shape.join(", ")}].`,
  );
}
