/** Selects the files of a remote checkpoint that the engine needs, and the order in which they are downloaded. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";

import {
  adapterConfigName,
  adapterWeightsName,
  indexFileName,
  lacks,
  poolingFolder,
  singleFileName,
  templateFileName,
  templateFolder,
  toolTemplateFileName,
  weightFileNames,
  type StoredContent,
} from "./checkpoint-files.ts";
import { parseWeightMap } from "./checkpoint.ts";
import { belongsTo, chooseOnnxFiles, isOnnxExport, onnxFolder } from "./onnx-variants.ts";
import type { OnnxVariant } from "./onnx-variants.ts";
import type { RemoteFile } from "./parallel-ranges.ts";

/** Other files that the engine may read. Optimiser states, other formats and pictures are not downloaded. */
const checkpointFile = /^[A-Za-z0-9_][\w.+-]*\.(json|jinja|txt|safetensors)$|^tokenizer\.model$/;

/** What is directly in a folder, by the names in there. */
export interface Listing<File extends RemoteFile> {
  readonly files: readonly File[];
  readonly folders: ReadonlySet<string>;
}

/** Lists the checkpoint's folder (`""`) or one of its folders. */
export type ListFolder<File extends RemoteFile> = (folder: string) => Promise<Listing<File>>;

/**
 * Returns the files that a start may need, by name; of weights under several names, all.
 *
 * @throws EngineError `invalid_checkpoint` for a missing file, or that of `chooseOnnxFiles`.
 */
export async function selectRemoteFiles<File extends RemoteFile>(
  reference: string,
  list: ListFolder<File>,
  variant: OnnxVariant,
  content: StoredContent = "checkpoint",
): Promise<ReadonlyMap<string, File>> {
  const { files: listed, folders } = await list("");
  if (content === "adapter") return selectAdapterFiles(reference, listed);
  const files = new Map(listed.filter(({ name }) => checkpointFile.test(name)).map((file) => [file.name, file]));
  const listedNames = listed.map(({ name }) => name);
  if (!files.has("config.json")) throw lacks(reference, "config.json", listedNames);
  if (files.has(templateFileName) && folders.has(templateFolder)) {
    for (const file of (await list(templateFolder)).files) {
      const name = `${templateFolder}/${file.name}`;
      if (name === toolTemplateFileName) files.set(name, { ...file, name });
    }
  }
  if (folders.has(poolingFolder)) {
    for (const file of (await list(poolingFolder)).files) {
      const name = `${poolingFolder}/${file.name}`;
      if (file.name === "config.json") files.set(name, { ...file, name });
    }
  }
  if (files.has(singleFileName) || files.has(indexFileName)) return files;
  const { files: inOnnxFolder } = await list(onnxFolder);
  const names = inOnnxFolder.map(({ name }) => name);
  if (!isOnnxExport(names)) throw lacks(reference, weightFileNames, listedNames);
  const chosen = chooseOnnxFiles(names, variant);
  for (const file of inOnnxFolder) {
    if (!belongsTo(file.name, chosen)) continue;
    const name = `${onnxFolder}/${file.name}`;
    files.set(name, { ...file, name });
  }
  return files;
}

function selectAdapterFiles<File extends RemoteFile>(
  reference: string,
  listed: readonly File[],
): ReadonlyMap<string, File> {
  return new Map(
    [adapterConfigName, adapterWeightsName].map((name) => {
      const file = listed.find((each) => each.name === name);
      if (file === undefined) throw lacks(reference, name, [], "adapter");
      return [name, file];
    }),
  );
}

/**
 * Calls `fetchMissing` for the index of the shards, which names them, and then for all files, weights at the end.
 *
 * @param folder Where `fetchMissing` puts the files.
 * @throws EngineError `invalid_checkpoint` for a wrong index and a missing shard.
 */
export async function fetchInOrder<File extends RemoteFile>(
  reference: string,
  folder: string,
  files: ReadonlyMap<string, File>,
  fetchMissing: (wanted: readonly File[]) => Promise<void>,
): Promise<void> {
  const index = files.get(indexFileName);
  const isSharded = index !== undefined && !files.has(singleFileName);
  if (isSharded) await fetchMissing([index]);
  const single = files.has(singleFileName) ? singleFileName : adapterWeightsName;
  const weightNames = isSharded ? await readShardNames(folder, reference, files) : new Set([single]);
  const isWeight = ({ name }: File): boolean => name.endsWith(".safetensors") || name.startsWith(`${onnxFolder}/`);
  const others = [...files.values()].filter((file) => !isWeight(file));
  // Repositories often contain their weights twice under different names.
  const weights = [...files.values()].filter(
    (file) => isWeight(file) && (!file.name.endsWith(".safetensors") || weightNames.has(file.name)),
  );
  await fetchMissing([...others, ...weights]);
}

async function readShardNames(
  folder: string,
  reference: string,
  files: ReadonlyMap<string, RemoteFile>,
): Promise<ReadonlySet<string>> {
  const shardNames = new Set(Object.values(parseWeightMap(await readFile(join(folder, indexFileName)))));
  for (const shardName of shardNames) {
    if (!files.has(shardName)) throw lacks(reference, `the shard ${shardName} that ${indexFileName} names`);
  }
  return shardNames;
}
