/** Opens files of a checkpoint, which may be anything: nothing but a regular file is opened, so that none is waited for. */
import { constants } from "node:fs";
import type { Stats } from "node:fs";
import { lstat, open } from "node:fs/promises";
import type { FileHandle } from "node:fs/promises";
import { basename } from "node:path";

import { EngineError } from "../contract/errors.ts";

/** Of a file that is read whole; the largest of those, tokenizer.json of a vocabulary of 260,000, has some 35 MB. */
const maxTextBytes = 256 * 1024 * 1024;

/**
 * Null where there is no such file.
 *
 * @throws EngineError `invalid_checkpoint`, naming the file, for a folder, a named pipe, a link that leads nowhere, and a
 *   file that may not be read.
 */
export async function openRegularFile(path: string): Promise<FileHandle | null> {
  const fileName = basename(path);
  let handle: FileHandle;
  try {
    // Without it, opening a named pipe waits for somebody who writes to it.
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

/** All bytes of it; null where there is no such file. Throws as `openRegularFile`, and for one that is too long. */
export async function readRegularFile(path: string): Promise<Buffer | null> {
  const handle = await openRegularFile(path);
  if (handle === null) return null;
  try {
    const { size } = await handle.stat();
    if (size > maxTextBytes) {
      throw new EngineError(
        "invalid_checkpoint",
        `${basename(path)} has ${size} bytes; the limit for this kind of file is ${maxTextBytes}.`,
      );
    }
    return await handle.readFile();
  } catch (cause) {
    if (cause instanceof EngineError) throw cause;
    throw new EngineError("invalid_checkpoint", `${basename(path)} cannot be read (${systemReason(cause)}).`, {
      cause,
    });
  } finally {
    await handle.close();
  }
}

/** The system's message without the path of the host, which it has at its end, after a comma. */
export function systemReason(error: unknown): string {
  return error instanceof Error ? error.message.split(",")[0] : String(error);
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
