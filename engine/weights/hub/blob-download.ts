/** Downloads a file of a hub into its cache: resumed by ranges, verified by its hash, and by one process at a time. */
import { createHash } from "node:crypto";
import { constants } from "node:fs";
import { open, readFile, rename, rm, writeFile } from "node:fs/promises";
import type { FileHandle } from "node:fs/promises";

import { EngineError } from "../../contract/errors.ts";
import { downloadRanges, RANGE_BYTES, rangesOf } from "../parallel-ranges.ts";
import type { Range, ReadRange } from "../parallel-ranges.ts";
import type { DownloadContext } from "../ranged-download.ts";
import { lockFile } from "./file-lock.ts";
import { storing } from "./hub-cache.ts";
import type { HubCache } from "./hub-cache.ts";
import type { HubFile } from "./hub-client.ts";

/** Names the finished ranges of the partial file, one a line. */
export const journalSuffix = ".fovea.ranges";

const journalHeader = `ranges of ${RANGE_BYTES} bytes`;

/** Large enough for full disk speed, small enough that hashing a chunk does not block the event loop. */
const HASH_CHUNK_BYTES = 4 * 1024 * 1024;

/**
 * Resolves when the blob is in the cache. A process that is killed, or fails for another reason than the hash, leaves a
 * partial file, and the next one downloads only its missing ranges.
 *
 * @throws EngineError of `read`, `invalid_checkpoint` if the bytes do not have the hash that the hub lists,
 * `invalid_configuration` with the setting `hubCacheFolder` if the disk is full or not writable.
 */
export async function downloadBlob(
  file: HubFile,
  read: ReadRange,
  cache: HubCache,
  context: DownloadContext,
): Promise<void> {
  await storing(`${file.path}, which has ${file.byteLength} bytes`, async () => {
    await using _lock = await lockFile(cache.lockPath(file), context.signal);
    if (await cache.hasBlob(file)) return context.addCompleted(file.byteLength);
    const isSound =
      (await downloadOnce(file, read, cache, context)) || (await downloadOnce(file, read, cache, context));
    if (isSound) return;
    throw new EngineError(
      "invalid_checkpoint",
      `The bytes of ${file.path} do not have the hash ${file.eTag} that the hub lists. The hub or a proxy sends another file.`,
    );
  });
}

/**
 * Returns false for a wrong hash, after removing the partial file; a resumed file may also have lost bytes with the
 * power, and another attempt downloads it from its start.
 */
async function downloadOnce(
  file: HubFile,
  read: ReadRange,
  cache: HubCache,
  { limit, signal, addCompleted }: DownloadContext,
): Promise<boolean> {
  const blobPath = cache.blobPath(file);
  const partialFile = cache.partialPath(file);
  const journalFile = `${blobPath}${journalSuffix}`;
  let numCompleted = 0;
  const complete = ({ start, end }: Range): void => {
    numCompleted += end - start;
    addCompleted(end - start);
  };
  const target = await open(partialFile, constants.O_RDWR | constants.O_CREAT);
  try {
    const ranges = rangesOf(file.byteLength);
    const finished = await readJournal(journalFile, target, file);
    await target.truncate(file.byteLength);
    // Written again as a whole, because its last line may be torn.
    await writeFile(journalFile, `${[journalHeader, ...finished].join("\n")}\n`);
    ranges.filter((_, index) => finished.has(index)).forEach(complete);
    const journal = await open(journalFile, "a");
    try {
      await downloadRanges(
        file.path,
        read,
        target,
        ranges.filter((_, index) => !finished.has(index)),
        {
          limit,
          signal,
          async onRange(range) {
            await journal.appendFile(`${range.start / RANGE_BYTES}\n`);
            complete(range);
          },
        },
      );
    } finally {
      await journal.close();
    }
    if ((await hashOf(target, file, signal)) !== file.eTag) {
      await rm(partialFile, { force: true });
      await rm(journalFile, { force: true });
      addCompleted(-numCompleted);
      return false;
    }
    // Otherwise the rename could reach the disk before the bytes.
    await target.datasync();
  } finally {
    await target.close();
  }
  await rename(partialFile, blobPath);
  await rm(journalFile, { force: true });
  return true;
}

/** Indices of the ranges that are in the partial file. */
async function readJournal(
  journalFile: string,
  target: FileHandle,
  { byteLength }: HubFile,
): Promise<ReadonlySet<number>> {
  if ((await target.stat()).size !== byteLength) return new Set();
  const text = await readFile(journalFile, "utf8").catch(() => "");
  // After the last newline is nothing, or a line that a killed process has not finished.
  const [header, ...lines] = text.split("\n").slice(0, -1);
  if (header !== journalHeader) return new Set();
  return new Set(lines.map(Number).filter((index) => index * RANGE_BYTES < byteLength && index >= 0));
}

/** As the hub lists it: SHA-256 for large files, the hash of git's blob for others. */
async function hashOf(target: FileHandle, { hash, byteLength }: HubFile, signal: AbortSignal): Promise<string> {
  const digest = createHash(hash === "git" ? "sha1" : "sha256");
  if (hash === "git") digest.update(`blob ${byteLength}\0`);
  const chunk = Buffer.allocUnsafe(Math.min(HASH_CHUNK_BYTES, Math.max(byteLength, 1)));
  for (let position = 0; position < byteLength;) {
    signal.throwIfAborted();
    const { bytesRead } = await target.read(chunk, 0, chunk.byteLength, position);
    if (bytesRead === 0) break;
    digest.update(chunk.subarray(0, bytesRead));
    position += bytesRead;
  }
  return digest.digest("hex");
}
