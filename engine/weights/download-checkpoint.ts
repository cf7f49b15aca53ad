/** Downloads the files of a checkpoint from S3 into a folder that is either complete or absent. */
import { hash } from "node:crypto";
import { readFile, stat, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import type { S3Client } from "@aws-sdk/client-s3";

import { EngineError } from "../contract/errors.ts";
import { writeAtomically } from "./atomic-file.ts";
import type { OnnxVariant } from "./onnx-variants.ts";
import { TransientDownloadError } from "./parallel-ranges.ts";
import type { WeightProgress } from "./progress.ts";
import { downloadAll, downloadAtomically } from "./ranged-download.ts";
import { fetchInOrder, selectRemoteFiles } from "./remote-checkpoint.ts";
import { listObjects, readRange } from "./s3-objects.ts";
import type { S3Location, S3Object } from "./s3-objects.ts";

/** Written last; lists what was downloaded. */
const completeMarker = ".complete.json";

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
  const list = (folder: string): Promise<readonly S3Object[]> => {
    const prefix = folder === "" ? location.prefix : `${location.prefix}${folder}/`;
    return listObjects(client, { ...location, prefix }, signal).catch((error: unknown) => {
      if (!(error instanceof TransientDownloadError)) throw error;
      throw new EngineError("invalid_configuration", error.message, { cause: error });
    });
  };
  const objects = await selectRemoteFiles(reference, list, variant);

  const manifest = JSON.stringify({ reference, objects: [...objects.values()] }, null, 1);
  const folder = resolve(cacheFolder, "checkpoints", hash("sha256", manifest));
  const fetchMissing = async (wanted: readonly S3Object[]): Promise<void> => {
    const missing: S3Object[] = [];
    for (const object of wanted) {
      if (!(await hasSize(join(folder, object.name), object.byteLength))) missing.push(object);
    }
    await downloadAll(
      missing,
      (object, context) => {
        const read = readRange.bind(null, client, object);
        return downloadAtomically(object, read, join(folder, object.name), context);
      },
      { onProgress, signal },
    );
  };

  const markerFile = join(folder, completeMarker);
  const isComplete = (await readFile(markerFile, "utf8").catch(() => "")) === manifest;
  await fetchInOrder(reference, folder, objects, fetchMissing);
  if (!isComplete)
    await writeAtomically(markerFile, "a downloaded checkpoint", (temporaryFile) => writeFile(temporaryFile, manifest));
  return folder;
}

/** Files appear complete and never change, so a different size means a damaged disk. */
async function hasSize(file: string, byteLength: number): Promise<boolean> {
  const stats = await stat(file).catch(() => null);
  return stats?.isFile() === true && stats.size === byteLength;
}
