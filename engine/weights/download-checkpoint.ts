/** Downloads the files of a checkpoint from S3 into a folder that is either complete or absent. */
import { hash } from "node:crypto";
import { readFile, stat, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import type { S3Client } from "@aws-sdk/client-s3";

import { EngineError } from "../contract/errors.ts";
import { writeAtomically } from "./atomic-file.ts";
import { indexFileName, lacks, singleFileName, weightFileNames } from "./checkpoint-files.ts";
import { parseWeightMap } from "./checkpoint.ts";
import { belongsTo, chooseOnnxFiles, isOnnxExport, onnxFolder, type OnnxVariant } from "./onnx-variants.ts";
import type { WeightProgress } from "./progress.ts";
import { downloadObjects, type Download } from "./ranged-download.ts";
import { listObjects, TransientDownloadError, type S3Location, type S3Object } from "./s3-objects.ts";

/** Written last; lists what was downloaded. */
const completeMarker = ".complete.json";

/** Other files that the engine may read. Optimiser states, other formats and pictures are not downloaded. */
const checkpointFile = /^[A-Za-z0-9_][\w.+-]*\.(json|jinja|txt|safetensors)$|^tokenizer\.model$/;

export interface DownloadCheckpointOptions {
  readonly cacheFolder: string;
  /** The wanted files of a ready-made export. Default: float32 on the CPU. */
  readonly variant?: OnnxVariant | undefined;
  readonly onProgress?: ((progress: WeightProgress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Returns the absolute path of the folder. Its name is derived from the listing (keys, ETags, sizes), so a complete
 * folder never changes: a start with an unchanged bucket costs one LIST, and a changed object leads to another folder.
 * Concurrent processes write equal files. Files that were complete when a process was killed are not downloaded again.
 */
export async function downloadCheckpoint(
  client: S3Client,
  location: S3Location,
  { cacheFolder, variant = { dtype: "float32", device: "cpu" }, onProgress, signal }: DownloadCheckpointOptions,
): Promise<string> {
  const reference = `s3://${location.bucket}/${location.prefix}`;
  const list = (below: S3Location): Promise<readonly S3Object[]> =>
    listObjects(client, below, signal).catch((error: unknown) => {
      if (!(error instanceof TransientDownloadError)) throw error;
      throw new EngineError("invalid_configuration", error.message, { cause: error });
    });
  const listed = await list(location);
  const objects = new Map(
    listed.filter(({ name }) => checkpointFile.test(name)).map((object) => [object.name, object]),
  );
  if (!objects.has("config.json")) throw lacks(reference, "config.json");
  if (!objects.has(singleFileName) && !objects.has(indexFileName)) {
    const inOnnxFolder = await list({ ...location, prefix: `${location.prefix}${onnxFolder}/` });
    if (!isOnnxExport(inOnnxFolder.map(({ name }) => name))) throw lacks(reference, weightFileNames);
    for (const object of exportedObjects(inOnnxFolder, variant)) objects.set(object.name, object);
  }

  const manifest = JSON.stringify({ reference, objects: [...objects.values()] }, null, 1);
  const folder = resolve(cacheFolder, "checkpoints", hash("sha256", manifest));
  const fetchMissing = async (wanted: readonly S3Object[]): Promise<void> => {
    const downloads: Download[] = [];
    for (const object of wanted) {
      const file = join(folder, object.name);
      if (!(await hasSize(file, object.byteLength))) downloads.push({ object, file });
    }
    await downloadObjects(client, downloads, { onProgress, signal });
  };

  const markerFile = join(folder, completeMarker);
  const isComplete = (await readFile(markerFile, "utf8").catch(() => "")) === manifest;
  const index = objects.get(indexFileName);
  const isSharded = index !== undefined && !objects.has(singleFileName);
  if (isSharded) await fetchMissing([index]);
  const weightNames = isSharded ? await readShardNames(folder, reference, objects) : new Set([singleFileName]);
  // Repositories often contain their weights twice under different names.
  await fetchMissing([...objects.values()].filter(({ name }) => isWanted(name, weightNames)));
  if (!isComplete)
    await writeAtomically(markerFile, "a downloaded checkpoint", (temporaryFile) => writeFile(temporaryFile, manifest));
  return folder;
}

/** The variant's objects, by their names below the checkpoint's prefix. */
function exportedObjects(inOnnxFolder: readonly S3Object[], variant: OnnxVariant): S3Object[] {
  const files = chooseOnnxFiles(
    inOnnxFolder.map(({ name }) => name),
    variant,
  );
  const wanted = inOnnxFolder.filter(({ name }) => belongsTo(name, files));
  return Array.from(wanted, ({ name, ...object }) => ({ name: `${onnxFolder}/${name}`, ...object }));
}

function isWanted(name: string, weightNames: ReadonlySet<string>): boolean {
  return !name.endsWith(".safetensors") || weightNames.has(name);
}

async function readShardNames(
  folder: string,
  reference: string,
  objects: ReadonlyMap<string, S3Object>,
): Promise<ReadonlySet<string>> {
  const shardNames = new Set(Object.values(parseWeightMap(await readFile(join(folder, indexFileName)))));
  for (const shardName of shardNames) {
    if (!objects.has(shardName)) throw lacks(reference, `the shard ${shardName} that ${indexFileName} names`);
  }
  return shardNames;
}

/** Files appear complete and never change, so a different size means a damaged disk. */
async function hasSize(file: string, byteLength: number): Promise<boolean> {
  const stats = await stat(file).catch(() => null);
  return stats?.isFile() === true && stats.size === byteLength;
}
