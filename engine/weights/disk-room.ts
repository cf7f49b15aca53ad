/** Compares a download, or prepared weights, with the free space of the disk, before the first byte. */
import { statfs } from "node:fs/promises";

import { EngineError } from "../contract/errors.ts";

export interface DiskRoom {
  /** As in an error. Default: "The checkpoint needs". */
  readonly contents?: string;
  /** As in an error: "the hub cache". */
  readonly place: string;
  readonly setting: "hubCacheFolder" | "cacheFolder";
}

/**
 * @param folder Exists.
 * @param numBytes Still to be written.
 * @throws EngineError `invalid_configuration` if the disk has less room.
 */
export async function requireDiskRoom(
  folder: string,
  numBytes: number,
  { contents = "The checkpoint needs", place, setting }: DiskRoom,
): Promise<void> {
  const { bavail, bsize, blocks } = await statfs(folder);
  const freeBytes = bavail * bsize;
  // Some file systems in user space do not tell their size.
  if (freeBytes >= numBytes || blocks === 0) return;
  throw new EngineError(
    "invalid_configuration",
    `${contents} ${mebibytes(numBytes)} MiB more, and the disk of ${place} has ${mebibytes(freeBytes)} MiB.`,
    { setting },
  );
}

function mebibytes(numBytes: number): string {
  return (numBytes / 1024 ** 2).toFixed(1);
}
