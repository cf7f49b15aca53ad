/** Resolves a repository of a hub to a folder of the cache that Fovea shares with huggingface_hub. */
import { readdir, readFile, rm, stat } from "node:fs/promises";
import { join } from "node:path";

import type { HubConfig } from "../../contract/config.ts";
import { EngineError } from "../../contract/errors.ts";
import type { HubRepository } from "../../contract/model-reference.ts";
import { indexFileName, singleFileName, type StoredContent } from "../checkpoint-files.ts";
import { parseWeightMap } from "../checkpoint.ts";
import { rememberHash } from "../file-hash.ts";
import type { OnnxVariant } from "../onnx-variants.ts";
import { TransientDownloadError } from "../parallel-ranges.ts";
import { downloadAll } from "../ranged-download.ts";
import type { DownloadOptions } from "../ranged-download.ts";
import { fetchInOrder, selectRemoteFiles } from "../remote-checkpoint.ts";
import { checkFolder } from "../sound-folder.ts";
import { downloadBlob, journalSuffix } from "./blob-download.ts";
import { HubCache, partialSuffix } from "./hub-cache.ts";
import { HubClient } from "./hub-client.ts";
import type { HubFile } from "./hub-client.ts";

/** Partial files of other revisions are removed when they are older than this. */
const ABANDONED_AFTER_MS = 7 * 24 * 60 * 60 * 1000;

export interface ResolveHubCheckpointOptions extends DownloadOptions {
  /** Stores hashes of files. */
  readonly cacheFolder: string;
  readonly variant: OnnxVariant;
  /** Default: checkpoint. */
  readonly content?: StoredContent | undefined;
}

/**
 * Returns the folder of the snapshot. A start asks the hub for the commit of the revision and for the list of files,
 * and downloads those that the cache lacks. Without an answer, the commit of the last download is used.
 *
 * @throws EngineError `invalid_configuration` (no such repository or revision, no access, no connection and nothing in
 * the cache, no room on the disk), `invalid_checkpoint` (a file is missing or not as listed), `aborted`.
 */
export async function resolveHubCheckpoint(
  repository: HubRepository,
  hub: HubConfig,
  options: ResolveHubCheckpointOptions,
): Promise<string> {
  const cache = new HubCache(hub.cacheFolder, repository);
  if (hub.isOffline) return findCached(cache, repository, "the hub is set to offline.", options.content);
  const signal = options.signal ?? new AbortController().signal;
  const client = new HubClient({ ...hub, token: await readToken(hub) }, repository, signal);
  let commit: string;
  let files: ReadonlyMap<string, HubFile>;
  try {
    commit = await client.resolveRevision();
    const list = (folder: string): ReturnType<HubClient["list"]> => client.list(commit, folder);
    files = await selectRemoteFiles(repository.repository, list, options.variant, options.content);
  } catch (error) {
    if (signal.aborted)
      throw new EngineError("aborted", "The download of the checkpoint was aborted.", { cause: error });
    if (!(error instanceof TransientDownloadError)) throw error;
    return findCached(cache, repository, error.message, options.content);
  }
  const fetchMissing = (wanted: readonly HubFile[]): Promise<void> =>
    fetchFiles({ cache, client, commit }, wanted, options);
  const folder = cache.snapshotFolder(commit);
  await fetchInOrder(repository.repository, folder, files, fetchMissing);
  await cache.storeCommit(repository.revision, commit);
  return folder;
}

interface Snapshot {
  readonly cache: HubCache;
  readonly client: HubClient;
  readonly commit: string;
}

async function fetchFiles(
  { cache, client, commit }: Snapshot,
  wanted: readonly HubFile[],
  { cacheFolder, onProgress, signal }: ResolveHubCheckpointOptions,
): Promise<void> {
  const toLink: HubFile[] = [];
  const missing = new Map<string, HubFile>();
  for (const file of wanted) {
    if (await cache.hasFile(commit, file)) continue;
    toLink.push(file);
    // Equal files have one blob.
    if (!(await cache.hasBlob(file))) missing.set(file.eTag, file);
  }
  const downloads = [...missing.values()];
  await cache.requireRoom(downloads);
  await downloadAll(
    downloads,
    (file, context) => downloadBlob(file, client.createReader(commit, file), cache, context),
    { onProgress, signal },
  );
  // In the order of `wanted`, weights at the end: without a connection, a snapshot with weights counts as complete.
  for (const file of toLink) {
    await cache.link(commit, file);
    if (file.hash !== "sha256" || !missing.has(file.eTag)) continue;
    await rememberHash(join(cache.snapshotFolder(commit), file.path), file.eTag, { cacheFolder });
  }
  if (downloads.length > 0) await removeAbandoned(cache, downloads[0]!);
}

/** Throws EngineError `invalid_configuration` if the cache has no complete snapshot; the reason completes the message. */
async function findCached(
  cache: HubCache,
  { repository, revision }: HubRepository,
  reason: string,
  content?: StoredContent,
): Promise<string> {
  const commit = await cache.readCommit(revision);
  const name = `revision ${revision} of ${repository}`;
  if (commit === null) {
    throw new EngineError(
      "invalid_configuration",
      `The hub cache has no ${name}, and it cannot be downloaded: ${reason}`,
      {
        setting: "hubCacheFolder",
      },
    );
  }
  const folder = cache.snapshotFolder(commit);
  try {
    await checkFolder(folder, repository, content);
    await requireShards(folder);
    return folder;
  } catch (cause) {
    if (!(cause instanceof EngineError)) throw cause;
    throw new EngineError(
      "invalid_configuration",
      `The hub cache has ${name} only in part, and the rest cannot be downloaded: ${reason} (${cause.message})`,
      { cause, setting: "hubCacheFolder" },
    );
  }
}

async function requireShards(folder: string): Promise<void> {
  const isFile = async (name: string): Promise<boolean> =>
    (await stat(join(folder, name)).catch(() => null))?.isFile() === true;
  if ((await isFile(singleFileName)) || !(await isFile(indexFileName))) return;
  for (const shardName of new Set(Object.values(parseWeightMap(await readFile(join(folder, indexFileName)))))) {
    if (!(await isFile(shardName))) throw new EngineError("invalid_checkpoint", `The shard ${shardName} is missing.`);
  }
}

async function readToken({ token, tokenFile }: HubConfig): Promise<string | null> {
  // Line breaks are not allowed in a header.
  const stored = token ?? (await readFile(tokenFile, "utf8").catch(() => "")).replaceAll(/[\r\n]/g, "").trim();
  if (/[^\x21-\x7e]/.test(stored)) {
    const place = token === null ? `The token in ${tokenFile}` : "The token";
    throw new EngineError(
      "invalid_configuration",
      `${place} has a character that no token of the hub has: expected visible ASCII characters without spaces.`,
      { setting: "hubToken" },
    );
  }
  return stored === "" ? null : stored;
}

/** A partial file that is not resumed was left by a revision that has changed since. */
async function removeAbandoned(cache: HubCache, downloaded: HubFile): Promise<void> {
  const { mtimeMs: newestMs } = await stat(cache.blobPath(downloaded));
  for (const name of await readdir(cache.blobFolder)) {
    if (!name.endsWith(partialSuffix) && !name.endsWith(journalSuffix)) continue;
    const path = join(cache.blobFolder, name);
    const stats = await stat(path).catch(() => null);
    if (stats !== null && stats.mtimeMs < newestMs - ABANDONED_AFTER_MS) await rm(path, { force: true });
  }
}
