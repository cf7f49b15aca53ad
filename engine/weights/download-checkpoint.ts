/** Downloads the files of a checkpoint from an object store into a folder that is either complete or absent. */
import { hash } from "node:crypto";
import { readFile, stat, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";

import { makeFolder, removeUnlocked, writeAtomically } from "./atomic-file.ts";
import type { StoredContent } from "./checkpoint-files.ts";
import { requireDiskRoom } from "./disk-room.ts";
import type { RemoteObject, RemoteObjects } from "./objects/remote-objects.ts";
import type { OnnxVariant } from "./onnx-variants.ts";
import type { WeightProgress } from "./progress.ts";
import { downloadAll, downloadAtomically } from "./ranged-download.ts";
import { fetchInOrder, selectRemoteFiles } from "./remote-checkpoint.ts";

/** Written last; lists what was downloaded. */
const completeMarker = ".complete.json";

export interface DownloadCheckpointOptions {
  readonly cacheFolder: string;
  /** The wanted files of a ready-made export. Default: float32 on the CPU. */
  readonly variant?: OnnxVariant | undefined;
  /** Default: checkpoint. */
  readonly content?: StoredContent | undefined;
  readonly onProgress?: ((progress: WeightProgress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Returns the absolute path of the folder. Its name is derived from the listing (keys, ETags, sizes), so a complete
 * folder never changes: a start with an unchanged bucket costs one LIST, and a changed object leads to another folder.
 * Concurrent processes write equal files. Files that were complete when a process was killed are not downloaded again.
 */
export async function downloadCheckpoint(
  remote: RemoteObjects,
  {
    cacheFolder,
    variant = { dtype: "float32", device: "cpu" },
    content,
    onProgress,
    signal,
  }: DownloadCheckpointOptions,
): Promise<string> {
  const { reference } = remote;
  const objects = await selectRemoteFiles(reference, (folder) => remote.list(folder, signal), variant, content);

  const manifest = JSON.stringify({ reference, objects: [...objects.values()] }, null, 1);
  const folder = resolve(cacheFolder, "checkpoints", hash("sha256", manifest));
  const fetchMissing = async (wanted: readonly RemoteObject[]): Promise<void> => {
    const missing: RemoteObject[] = [];
    for (const object of wanted) {
      if (!(await hasSize(join(folder, object.name), object.byteLength))) missing.push(object);
    }
    if (missing.length > 0) {
      await makeFolder(folder);
      await removeUnlocked(folder);
      const numBytes = missing.reduce((sum, { byteLength }) => sum + byteLength, 0);
      await requireDiskRoom(folder, numBytes, { place: "the cache folder", setting: "cacheFolder" });
    }
    await downloadAll(
      missing,
      (object, context) =>
        downloadAtomically(object, remote.createReader(object), join(folder, object.name), {
          ...context,
          ...(object.checksum && { checksum: object.checksum }),
        }),
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
