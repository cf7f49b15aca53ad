/**
 * A repository in huggingface_hub's cache: https://huggingface.co/docs/huggingface_hub/guides/manage-cache. Python
 * programs and Fovea read what the other has downloaded.
 *
 * `blobs/` has the files by their hashes, `snapshots/<commit>/` has links to them by their names, and `refs/<revision>`
 * has the commit of a branch or tag.
 */
import { randomUUID } from "node:crypto";
import { readFile, rename, rm, stat, symlink, writeFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";

import { EngineError } from "../../contract/errors.ts";
import type { HubRepository } from "../../contract/model-reference.ts";
import { isSystemError, makeFolder } from "../atomic-file.ts";
import { requireDiskRoom } from "../disk-room.ts";
import { systemReason } from "../regular-file.ts";
import type { HubFile } from "./hub-client.ts";

/** Not huggingface_hub's `.incomplete` alone: some of its versions append to such a file, but this one has gaps. */
export const partialSuffix = ".fovea.incomplete";
/** Of `stat`, whatever the file system's own blocks have. */
const STAT_BLOCK_BYTES = 512;

const commitHash = /^[0-9a-f]{40}$/;

/** Has the format of the cache of this repository, and no state but its paths. */
export class HubCache {
  readonly #folder: string;
  readonly #lockFolder: string;

  constructor(cacheFolder: string, { repository }: HubRepository) {
    const name = ["models", ...repository.split("/")].join("--");
    this.#folder = join(cacheFolder, name);
    this.#lockFolder = join(cacheFolder, ".locks", name);
  }

  get blobFolder(): string {
    return join(this.#folder, "blobs");
  }

  blobPath({ eTag }: HubFile): string {
    return join(this.blobFolder, eTag);
  }

  partialPath(file: HubFile): string {
    return `${this.blobPath(file)}${partialSuffix}`;
  }

  lockPath({ eTag }: HubFile): string {
    return join(this.#lockFolder, `${eTag}.lock`);
  }

  snapshotFolder(commit: string): string {
    return join(this.#folder, "snapshots", commit);
  }

  /** The commit that the revision had when it was last downloaded; null if it never was. */
  async readCommit(revision: string): Promise<string | null> {
    if (commitHash.test(revision)) return revision;
    const commit = await readFile(join(this.#folder, "refs", revision), "utf8").catch(() => "");
    return commitHash.test(commit.trim()) ? commit.trim() : null;
  }

  /** The cache may be read-only, and the commit is only needed by later starts without a connection. */
  async storeCommit(revision: string, commit: string): Promise<void> {
    if (commitHash.test(revision) || (await this.readCommit(revision)) === commit) return;
    const path = join(this.#folder, "refs", revision);
    await replace(path, (temporaryPath) => writeFile(temporaryPath, commit)).catch((error: unknown) => {
      if (!isSystemError(error)) throw error;
    });
  }

  /** Whether the snapshot has the file. Not every writer of a cache writes atomically, so its size counts. */
  async hasFile(commit: string, { path, byteLength }: HubFile): Promise<boolean> {
    return hasSize(join(this.snapshotFolder(commit), path), byteLength);
  }

  async hasBlob(file: HubFile): Promise<boolean> {
    return hasSize(this.blobPath(file), file.byteLength);
  }

  /** Links the blob of the file into the snapshot. */
  async link(commit: string, file: HubFile): Promise<void> {
    const path = join(this.snapshotFolder(commit), file.path);
    await storing(file.path, () =>
      replace(path, (temporaryPath) => symlink(relative(dirname(path), this.blobPath(file)), temporaryPath)),
    );
  }

  /** @throws EngineError `invalid_configuration` if the disk has less room than the files still need. */
  async requireRoom(files: readonly HubFile[]): Promise<void> {
    if (files.length === 0) return;
    await storing("the checkpoint", () => makeFolder(this.blobFolder));
    const numBytes = await this.missingBytes(files);
    await requireDiskRoom(this.blobFolder, numBytes, { place: "the hub cache", setting: "hubCacheFolder" });
  }

  /** Partial files of an earlier start, or of another process that downloads the same files, count as written. */
  async missingBytes(files: readonly HubFile[]): Promise<number> {
    const missing = await Promise.all(
      files.map(async (file) => Math.max(file.byteLength - (await allocatedBytes(this.partialPath(file))), 0)),
    );
    return missing.reduce((sum, numBytes) => sum + numBytes, 0);
  }
}

/** Calls `write`; errors of the file system become EngineError `invalid_configuration`. */
export async function storing<Result>(contents: string, write: () => Promise<Result>): Promise<Result> {
  try {
    return await write();
  } catch (error) {
    if (!isSystemError(error)) throw error;
    const message = `The hub cache cannot store ${contents} (${systemReason(error)}).`;
    throw new EngineError("invalid_configuration", message, { cause: error, setting: "hubCacheFolder" });
  }
}

async function replace(path: string, write: (temporaryPath: string) => Promise<void>): Promise<void> {
  const temporaryPath = `${path}.${randomUUID()}.tmp`;
  await makeFolder(dirname(path));
  try {
    await write(temporaryPath);
    await rename(temporaryPath, path);
  } catch (error) {
    await rm(temporaryPath, { force: true }).catch(() => undefined);
    throw error;
  }
}

async function hasSize(path: string, byteLength: number): Promise<boolean> {
  const stats = await stat(path).catch(() => null);
  return stats?.isFile() === true && stats.size === byteLength;
}

/** What the file takes on the disk. Its holes do not count. */
async function allocatedBytes(path: string): Promise<number> {
  const stats = await stat(path).catch(() => null);
  return (stats?.blocks ?? 0) * STAT_BLOCK_BYTES;
}
