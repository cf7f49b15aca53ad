/** Opens a folder in Hugging Face's layout: its configuration and the location of each tensor. */
import { createHash } from "node:crypto";
import { readdir } from "node:fs/promises";
import { basename, join, resolve } from "node:path";

import { EngineError } from "../contract/errors.ts";
import { describeError } from "../excerpt.ts";
import type { NamedAdapter } from "./adapters/named-adapter.ts";
import { indexFileName, quantisationFileName, singleFileName } from "./checkpoint-files.ts";
import { hashFile } from "./file-hash.ts";
import { withSeparateExperts } from "./fused-experts.ts";
import { isOnnxExport, onnxFolder } from "./onnx-variants.ts";
import { parsePythonJson } from "./python-json.ts";
import { locateQuantised, withQuantisationFile } from "./quantised/quantised-tensors.ts";
import { readRegularFile } from "./regular-file.ts";
import { readSafetensorsHeader } from "./safetensors.ts";
import type { StoredTensor } from "./stored-tensor.ts";

export interface Checkpoint {
  /** Absolute path. */
  readonly folder: string;
  /** `config.json`, parsed but not validated, with the content of `hf_quant_config.json` as `quantization_config`. */
  readonly config: unknown;
  /** Quantised matrices are shown as `{module}.weight`, and experts one by one. Empty for a ready-made export. */
  readonly tensors: ReadonlyMap<string, StoredTensor>;
  /** Names of the files in `onnx/` for a ready-made export without safetensors, otherwise null. */
  readonly onnxFileNames: readonly string[] | null;
  /** What an adapter changes, such as "LoRA of rank 8, 24 matrices". Left out: there is none. */
  readonly adapter?: string;
  /** Adapters of which each request may choose one. Left out: none. */
  readonly adapters?: readonly NamedAdapter[];
  /**
   * Hex SHA-256 of config.json, hf_quant_config.json and the weight files. Equal content in another folder has the same hash. The first call
   * reads every byte; the cache folder then stores the hash for as long as the files do not change.
   */
  contentHash(options?: ContentHashOptions): Promise<string>;
  /** Null if the file does not exist. Throws EngineError `invalid_checkpoint` if it cannot be read or is not JSON. */
  readJson(fileName: string): Promise<unknown>;
}

export interface ContentHashOptions {
  readonly signal?: AbortSignal | undefined;
  /** Absolute paths of the relevant weight files. Default: the safetensors files. */
  readonly files?: readonly string[];
}

export interface OpenCheckpointOptions {
  /** Stores content hashes between starts. */
  readonly cacheFolder: string;
}

/**
 * Weights are `model.safetensors`, otherwise the shards listed in `model.safetensors.index.json`, otherwise the
 * ready-made ONNX files in `onnx/`.
 *
 * @throws EngineError `invalid_checkpoint` that names the missing or invalid file.
 */
export async function openCheckpoint(folder: string, { cacheFolder }: OpenCheckpointOptions): Promise<Checkpoint> {
  const absoluteFolder = resolve(folder);
  const folderName = basename(absoluteFolder);
  const configBytes = await readRegularFile(join(absoluteFolder, "config.json"));
  if (configBytes === null) {
    throw new EngineError("invalid_checkpoint", `The checkpoint ${folderName} has no config.json.`);
  }
  const quantisationBytes = await readRegularFile(join(absoluteFolder, quantisationFileName));
  const config = withQuantisationFile(
    parseJson(configBytes, "config.json"),
    quantisationBytes === null ? null : parseJson(quantisationBytes, quantisationFileName),
  );
  const indexBytes = await readRegularFile(join(absoluteFolder, indexFileName));
  const inOnnxFolder = await readdir(join(absoluteFolder, onnxFolder)).catch((): string[] => []);
  const hasExport = isOnnxExport(inOnnxFolder);
  const single = await readSingleFile(join(absoluteFolder, singleFileName), indexBytes !== null || hasExport);
  const isExport = single === null && indexBytes === null;
  const stored = single ?? (isExport ? new Map<string, StoredTensor>() : await readShards(absoluteFolder, indexBytes));
  // The files of an export contain everything, whatever its configuration says of the weights that they come from.
  const tensors = isExport ? stored : await locateQuantised(config, withSeparateExperts(stored));

  return {
    folder: absoluteFolder,
    config,
    tensors,
    onnxFileNames: isExport ? inOnnxFolder : null,
    async contentHash({ signal, files = [...new Set([...tensors.values()].map(({ file }) => file))].sort() } = {}) {
      const hash = createHash("sha256").update(configBytes);
      if (quantisationBytes !== null) hash.update(quantisationBytes);
      for (const file of files) {
        hash.update(await hashFile(file, { cacheFolder, signal }));
      }
      return hash.digest("hex");
    },
    async readJson(fileName) {
      const bytes = await readRegularFile(join(absoluteFolder, fileName));
      return bytes === null ? null : parseJson(bytes, fileName);
    },
  };
}

/** Null if the file does not exist and others can replace it. */
async function readSingleFile(file: string, hasOthers: boolean): Promise<ReadonlyMap<string, StoredTensor> | null> {
  const tensors = await readSafetensorsHeader(file);
  if (tensors !== null || hasOthers) return tensors;
  const folderName = basename(resolve(file, ".."));
  throw new EngineError(
    "invalid_checkpoint",
    `The checkpoint ${folderName} has neither ${singleFileName} nor ${indexFileName}, nor an ONNX export in ${onnxFolder}/.`,
  );
}

/**
 * All tensors of the shards that the index names, as in transformers: it may list tensors that they lack, and not list
 * others. Of equal names, it decides which one counts, and otherwise the last shard does.
 */
async function readShards(folder: string, indexBytes: Buffer | null): Promise<ReadonlyMap<string, StoredTensor>> {
  const places = new Map(Object.entries(parseWeightMap(indexBytes)));
  const shardNames = [...new Set(places.values())].sort();
  const shards = new Map<string, ReadonlyMap<string, StoredTensor>>();
  for (const shardName of shardNames) {
    const tensors = await readSafetensorsHeader(join(folder, shardName));
    if (tensors === null) {
      throw new EngineError("invalid_checkpoint", `The shard ${shardName} named by ${indexFileName} is missing.`);
    }
    shards.set(shardName, tensors);
  }
  const tensors = new Map<string, StoredTensor>();
  for (const [shardName, stored] of shards) {
    for (const [name, tensor] of stored) {
      const place = places.get(name) ?? shardName;
      if (place === shardName || shards.get(place)?.has(name) !== true) tensors.set(name, tensor);
    }
  }
  return tensors;
}

export function parseWeightMap(indexBytes: Buffer | null): Readonly<Record<string, string>> {
  const index = indexBytes === null ? null : parseJson(indexBytes, indexFileName);
  const weightMap = typeof index === "object" && index !== null && "weight_map" in index ? index.weight_map : undefined;
  if (typeof weightMap !== "object" || weightMap === null || Object.keys(weightMap).length === 0) {
    throw new EngineError("invalid_checkpoint", `${indexFileName} has no weight_map.`);
  }
  for (const [name, shardName] of Object.entries(weightMap)) {
    // A name with folders could lead out of the checkpoint.
    if (typeof shardName !== "string" || shardName !== basename(shardName) || !shardName.endsWith(".safetensors")) {
      throw new EngineError("invalid_checkpoint", `${indexFileName} names no safetensors file for tensor ${name}.`);
    }
  }
  return weightMap as Readonly<Record<string, string>>;
}

function parseJson(bytes: Buffer, fileName: string): unknown {
  try {
    return parsePythonJson(bytes.toString("utf8"));
  } catch (cause) {
    throw new EngineError("invalid_checkpoint", `${fileName} is not JSON (${describeError(cause)}).`, { cause });
  }
}
