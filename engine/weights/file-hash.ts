/** Content hashes of large files, stored so that a start does not have to read gigabytes. */
import { createHash, hash } from "node:crypto";
import { createReadStream } from "node:fs";
import { readFile, stat, writeFile } from "node:fs/promises";
import { basename, join, resolve } from "node:path";

import { EngineError } from "../contract/errors.ts";
import { writeAtomically } from "./atomic-file.ts";
import { systemReason } from "./regular-file.ts";

/** Large enough for full disk speed, small enough that hashing a chunk does not block the event loop. */
const CHUNK_BYTES = 4 * 1024 * 1024;

export interface HashFileOptions {
  readonly cacheFolder: string;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Returns the hex SHA-256 of a file. A stored hash is used only if size, inode, modification time and change time are
 * unchanged. They are read before the bytes, so a file that changes meanwhile is hashed again next time.
 *
 * @throws EngineError `invalid_checkpoint`, `aborted`.
 */
export async function hashFile(file: string, { cacheFolder, signal }: HashFileOptions): Promise<string> {
  const path = resolve(file);
  const identity = await identityOf(path);
  const memoFile = memoFileOf(path, cacheFolder);

  const memo = await readFile(memoFile, "utf8").catch(() => "");
  const [rememberedHash, ...rememberedIdentity] = memo.split("\n");
  if (rememberedHash !== undefined && rememberedHash.length === 64 && rememberedIdentity.join("\n") === identity) {
    return rememberedHash;
  }

  const digest = createHash("sha256");
  try {
    for await (const chunk of createReadStream(path, { highWaterMark: CHUNK_BYTES, signal })) {
      digest.update(chunk as Buffer);
    }
  } catch (cause) {
    if (signal?.aborted === true) throw new EngineError("aborted", "Hashing the checkpoint was aborted.", { cause });
    throw new EngineError("invalid_checkpoint", `${basename(path)} cannot be read (${systemReason(cause)}).`, {
      cause,
    });
  }
  const contentHash = digest.digest("hex");
  await store(memoFile, contentHash, identity);
  return contentHash;
}

/** Stores a hash that the caller has just computed, so that `hashFile` need not read the file again. */
export async function rememberHash(file: string, contentHash: string, { cacheFolder }: HashFileOptions): Promise<void> {
  const path = resolve(file);
  await store(memoFileOf(path, cacheFolder), contentHash, await identityOf(path));
}

async function identityOf(path: string): Promise<string> {
  const { size, ino, mtimeNs, ctimeNs } = await stat(path, { bigint: true });
  return [path, size, ino, mtimeNs, ctimeNs].join("\n");
}

function memoFileOf(path: string, cacheFolder: string): string {
  return join(cacheFolder, "hashes", `${hash("sha256", path)}.txt`);
}

async function store(memoFile: string, contentHash: string, identity: string): Promise<void> {
  await writeAtomically(memoFile, "the hash of a file", (temporaryFile) =>
    writeFile(temporaryFile, `${contentHash}\n${identity}`),
  ).catch(ignoreUnwritable);
}

/** A filled cache folder may be read-only now. Then the next start hashes again. */
function ignoreUnwritable(error: unknown): void {
  if (!(error instanceof EngineError) || error.code !== "invalid_configuration") throw error;
}
