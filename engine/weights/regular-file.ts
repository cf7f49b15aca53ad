/** Opens files of a checkpoint, but only regular ones, so that no pipe or device can block. */
import { constants } from "node:fs";
import type { Stats } from "node:fs";
import { lstat, open } from "node:fs/promises";
import type { FileHandle } from "node:fs/promises";
import { basename } from "node:path";

import { EngineError } from "../contract/errors.ts";

/** Limit of a file that is read whole. The largest, tokenizer.json of a vocabulary of 260,000, has about 35 MB. */
const MAX_TEXT_BYTES = 256 * 1024 * 1024;

/** The beginning of every Git LFS pointer, which a clone without LFS has in place of a large file. */
const gitLfsPointer = Buffer.from("version https://git-lfs.github.com/spec/");

/**
 * Returns null if the file does not exist.
 *
 * @throws EngineError `invalid_checkpoint` that names the file, for a folder, a named pipe, a broken link, and a file
 * without read permission.
 */
export async function openRegularFile(path: string): Promise<FileHandle | null> {
  const fileName = basename(path);
  let handle: FileHandle;
  try {
    // Without this flag, opening a named pipe waits for a writer.
    handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (cause) {
    const isAbsent = isNotFound(cause);
    if (isAbsent && !(await isLink(path))) return null;
    const fault = isAbsent ? "is a link to a file that does not exist" : `cannot be read (${systemReason(cause)})`;
    throw new EngineError("invalid_checkpoint", `${fileName} ${fault}.`, { cause });
  }
  const stats = await handle.stat();
  if (stats.isFile()) return handle;
  await handle.close();
  throw new EngineError("invalid_checkpoint", `${fileName} is ${kindOf(stats)}, not a file.`);
}

/**
 * Returns all bytes, or null if the file does not exist. Throws like `openRegularFile`, and for a file that is too
 * large or a Git LFS pointer.
 */
export async function readRegularFile(path: string): Promise<Buffer | null> {
  const handle = await openRegularFile(path);
  if (handle === null) return null;
  try {
    const { size } = await handle.stat();
    if (size > MAX_TEXT_BYTES) {
      throw new EngineError(
        "invalid_checkpoint",
        `${basename(path)} has ${size} bytes; the limit for this kind of file is ${MAX_TEXT_BYTES}.`,
      );
    }
    const bytes = await handle.readFile();
    if (bytes.subarray(0, gitLfsPointer.length).equals(gitLfsPointer)) {
      throw new EngineError("invalid_checkpoint", describeGitLfsPointer(basename(path)));
    }
    return bytes;
  } catch (cause) {
    if (cause instanceof EngineError) throw cause;
    throw new EngineError("invalid_checkpoint", `${basename(path)} cannot be read (${systemReason(cause)}).`, {
      cause,
    });
  } finally {
    await handle.close();
  }
}

/** Whether an open file is a Git LFS pointer. */
export async function isGitLfsPointer(handle: FileHandle): Promise<boolean> {
  const beginning = Buffer.alloc(gitLfsPointer.length);
  await handle.read(beginning, 0, beginning.length, 0);
  return beginning.equals(gitLfsPointer);
}

export function describeGitLfsPointer(fileName: string): string {
  return `${fileName} is a Git LFS pointer, not the file; run \`git lfs pull\` in the clone.`;
}

/** The system's message without the host's path, which follows a comma at its end. */
export function systemReason(error: unknown): string {
  return error instanceof Error ? error.message.split(",")[0]! : String(error);
}

function kindOf(stats: Stats): string {
  if (stats.isDirectory()) return "a folder";
  return stats.isFIFO() ? "a named pipe" : "a device";
}

async function isLink(path: string): Promise<boolean> {
  const stats = await lstat(path).catch(() => null);
  return stats?.isSymbolicLink() === true;
}

function isNotFound(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ENOENT";
}
