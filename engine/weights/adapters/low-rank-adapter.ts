/** Merges a LoRA adapter, as PEFT saves it, into the weights of its base model. */
import { createHash } from "node:crypto";
import { join } from "node:path";

import { EngineError } from "../../contract/errors.ts";
import { describeError } from "../../excerpt.ts";
import { adapterConfigName, adapterWeightsName } from "../checkpoint-files.ts";
import type { Checkpoint } from "../checkpoint.ts";
import { hashFile } from "../file-hash.ts";
import { isFloat } from "../float-conversion.ts";
import { readRegularFile } from "../regular-file.ts";
import { readSafetensorsHeader } from "../safetensors.ts";
import type { LowRankUpdate, StoredTensor } from "../stored-tensor.ts";
import { parseAdapterConfig, type AdapterConfig } from "./adapter-config.ts";

type Tensors = ReadonlyMap<string, StoredTensor>;

export interface AdapterOptions {
  /** Stores hashes of files. */
  readonly cacheFolder: string;
}

/**
 * The checkpoint with the updates of an adapter, which are added when weights are prepared. Tensors that the adapter
 * has as a whole (`modules_to_save`, biases) take the place of the checkpoint's.
 *
 * Names are those of modules in transformers, which may nest a model's parts in another way than the file does:
 * `model`, `language_model` and `vision_model` are left out where they are compared.
 *
 * @param folder With adapter_config.json and adapter_model.safetensors.
 * @throws EngineError `invalid_checkpoint` for an adapter that cannot be read, is of another kind, or has a part that the
 *   checkpoint lacks; `invalid_configuration` for a ready-made export and for weights that stay quantised.
 */
export async function withAdapter(
  checkpoint: Checkpoint,
  folder: string,
  { cacheFolder }: AdapterOptions,
): Promise<Checkpoint> {
  if (checkpoint.onnxFileNames !== null) {
    throw new EngineError(
      "invalid_configuration",
      "A LoRA adapter is merged into safetensors files; this model is a ready-made ONNX export.",
      { setting: "loraAdapter" },
    );
  }
  const configBytes = await readRegularFile(join(folder, adapterConfigName));
  if (configBytes === null) throw invalidAdapter(`It has no ${adapterConfigName}.`);
  const config = parseAdapterConfig(parseJson(configBytes));
  const file = join(folder, adapterWeightsName);
  const stored = await readSafetensorsHeader(file);
  if (stored === null) throw invalidAdapter(`It has no ${adapterWeightsName}.`);
  const tensors = changedTensors(checkpoint, stored, config);
  return {
    ...checkpoint,
    tensors,
    adapter: describe(tensors, checkpoint.tensors),
    async contentHash({ signal, files } = {}) {
      // The base model's own files: the adapter's are hashed below.
      const ofBase = files ?? [...new Set([...checkpoint.tensors.values()].map((tensor) => tensor.file))].sort();
      const hash = createHash("sha256").update(await checkpoint.contentHash({ signal, files: ofBase }));
      hash.update(configBytes).update(await hashFile(file, { cacheFolder, signal }));
      return hash.digest("hex");
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

function changedTensors(checkpoint: Checkpoint, stored: Tensors, config: AdapterConfig): Tensors {
  const parts = new Map<string, AdapterPart>();
  const wholes = new Map<string, StoredTensor>();
  for (const [storedName, tensor] of stored) {
    const name = nameInModel(storedName);
    if (!isFloat(tensor.elementType))
      throw invalidAdapter(`Its tensor ${storedName} is of type ${tensor.elementType}.`);
    const [, module, kind] = matrixName.exec(name) ?? [];
    if (module === undefined) {
      if (otherPart.test(name)) throw invalidAdapter(`Its tensor ${storedName} is of a kind that is not merged.`);
      wholes.set(name, tensor);
      continue;
    }
    const part = parts.get(module) ?? {};
    if (kind === "lora_A") part.down = tensor;
    else if (kind === "lora_B") part.up = tensor;
    else part.magnitudes = tensor;
    parts.set(module, part);
  }
  if (parts.size === 0 && wholes.size === 0) throw invalidAdapter("It changes no tensor.");

  const find = createFinder(checkpoint.tensors);
  const tensors = new Map(checkpoint.tensors);
  for (const [module, part] of parts) {
    const tensor = find(`${module}.weight`);
    tensors.set(tensor.name, { ...tensor, update: updateOf(module, part, tensor, config) });
  }
  for (const [name, whole] of wholes) {
    const tensor = find(name);
    if (whole.shape.join() !== tensor.shape.join()) throw otherShape(whole, tensor);
    if (/\bembed_tokens\.weight$/.test(name) && isTied(checkpoint)) {
      throw invalidAdapter(`It has embeddings of its own (${name}), which this model shares with its output layer.`);
    }
    tensors.set(tensor.name, { ...whole, name: tensor.name });
  }
  return tensors;
}

function updateOf(
  module: string,
  { down, up, magnitudes }: AdapterPart,
  tensor: StoredTensor,
  config: AdapterConfig,
): LowRankUpdate {
  if (down === undefined || up === undefined) {
    throw invalidAdapter(`It has only one of the matrices lora_A and lora_B of ${module}.`);
  }
  if (tensor.quantised?.kind === "grouped") {
    throw new EngineError(
      "invalid_configuration",
      `The LoRA adapter changes ${tensor.name}, which this model stores in integers that stay as they are. Take the model without quantisation, and set the dtype to int4 or int8.`,
      { setting: "loraAdapter" },
    );
  }
  const [rank, columns] = down.shape;
  const [rows] = up.shape;
  const isMatrix = tensor.shape.length === 2 && down.shape.length === 2 && up.shape.length === 2;
  if (!isMatrix || up.shape[1] !== rank) throw otherShape(up, down);
  if (rows !== tensor.shape[0]) throw otherShape(up, tensor);
  if (columns !== tensor.shape[1]) throw otherShape(down, tensor);
  if (magnitudes !== undefined && magnitudes.shape.reduce((product, size) => product * size, 1) !== rows) {
    throw otherShape(magnitudes, tensor);
  }
  return { down, up, scale: config.scaleOf(module, rank!), magnitudes: magnitudes ?? null };
}

/** Such as "LoRA of rank 8, 24 matrices". */
function describe(changed: Tensors, before: Tensors): string {
  const updates = [...changed.values()].flatMap(({ update }) => update ?? []);
  const ranks = updates.map(({ down }) => down.shape[0]!);
  const [lowest, highest] = [Math.min(...ranks), Math.max(...ranks)];
  const numWholes = [...changed].filter(([name, { file }]) => file !== before.get(name)!.file).length;
  const parts = [
    ...(updates.length === 0
      ? []
      : [`LoRA of rank ${lowest === highest ? lowest : `${lowest} to ${highest}`}, ${updates.length} matrices`]),
    ...(numWholes === 0 ? [] : [`${numWholes} whole tensors`]),
  ];
  return parts.join(", ");
}

/** Finds the checkpoint's tensor of a module: by its name, or by what is left of it without the names of containers. */
function createFinder(tensors: Tensors): (name: string) => StoredTensor {
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
      throw invalidAdapter(`It changes ${name}, which the model does not have. Is this its base model?`);
    }
    if (other !== undefined) {
      throw invalidAdapter(`It changes ${name}, which can be ${tensor.name} or ${other.name} of the model.`);
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

function parseJson(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString("utf8"));
  } catch (cause) {
    throw invalidAdapter(`Its ${adapterConfigName} is not JSON (${describeError(cause)}).`, cause);
  }
}

function otherShape(part: StoredTensor, tensor: StoredTensor): EngineError {
  return invalidAdapter(
    `Its tensor ${part.name} [${part.shape.join(", ")}] does not go with ${tensor.name} [${tensor.shape.join(", ")}].`,
  );
}

function invalidAdapter(reason: string, cause?: unknown): EngineError {
  return new EngineError("invalid_checkpoint", `The LoRA adapter does not fit. ${reason}`, {
    setting: "loraAdapter",
    ...(cause !== undefined && { cause }),
  });
}
