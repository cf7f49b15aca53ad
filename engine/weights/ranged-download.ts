/** Downloads files of a checkpoint side by side: the first failure ends all, and progress counts their bytes. */
import { open } from "node:fs/promises";

import { EngineError } from "../contract/errors.ts";
import { writeAtomically } from "./atomic-file.ts";
import { hasChecksum } from "./objects/checksum.ts";
import type { Checksum } from "./objects/checksum.ts";
import { createLimit, downloadRanges, MAX_PARALLEL_RANGES, rangesOf } from "./parallel-ranges.ts";
import type { Limit, Range, ReadRange, RemoteFile } from "./parallel-ranges.ts";
import type { WeightProgress } from "./progress.ts";
import { systemReason } from "./regular-file.ts";

export interface DownloadOptions {
  readonly onProgress?: ((progress: WeightProgress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface DownloadContext {
  /** Shared by all files. */
  readonly limit: Limit;
  /** Ends when any file fails. */
  readonly signal: AbortSignal;
  readonly addCompleted: (numBytes: number) => void;
}

/**
 * Resolves when every file is complete. A permanent failure ends all downloads. Files that are complete by then stay,
 * so that the next start resumes.
 *
 * @throws EngineError of `download`, `aborted`, or `invalid_configuration` if the server keeps failing.
 */
export async function downloadAll<File extends RemoteFile>(
  files: readonly File[],
  download: (file: File, context: DownloadContext) => Promise<void>,
  { onProgress, signal }: DownloadOptions,
): Promise<void> {
  const total = files.reduce((sum, { byteLength }) => sum + byteLength, 0);
  let completed = 0;
  const addCompleted = (numBytes: number): void => {
    completed += numBytes;
    onProgress?.({ task: "downloading checkpoint", completed, total, unit: "bytes" });
  };
  const ending = new AbortController();
  const endingSignal = signal === undefined ? ending.signal : AbortSignal.any([signal, ending.signal]);
  const context = { limit: createLimit(MAX_PARALLEL_RANGES), signal: endingSignal, addCompleted };

  const settled = files.map(async (file) => {
    try {
      await download(file, context);
    } catch (error) {
      // The first failure is the cause; later ones are its consequences.
      ending.abort(error);
    }
  });
  await Promise.all(settled);
  if (signal?.aborted === true) throw new EngineError("aborted", "The download of the checkpoint was aborted.");
  if (!ending.signal.aborted) return;
  const cause: unknown = ending.signal.reason;
  if (cause instanceof EngineError) throw cause;
  const reason = systemReason(cause);
  throw new EngineError("invalid_configuration", `The checkpoint cannot be downloaded: ${reason}`, { cause });
}

export interface VerifiedDownloadContext extends DownloadContext {
  /** Hash of the whole file; without it, only its size is certain. */
  readonly checksum?: Checksum;
}

/**
 * Downloads into a file that appears only when it is complete. A wrong checksum is worth one more attempt.
 *
 * @throws EngineError `invalid_checkpoint` for a wrong checksum, and errors of `read` and of `writeAtomically`.
 */
export async function downloadAtomically(
  { name, byteLength }: RemoteFile,
  read: ReadRange,
  file: string,
  { limit, signal, addCompleted, checksum }: VerifiedDownloadContext,
): Promise<void> {
  const onRange = ({ start, end }: Range): void => addCompleted(end - start);
  await writeAtomically(file, `${name}, which has ${byteLength} bytes`, async (temporaryFile) => {
    const target = await open(temporaryFile, "r+");
    try {
      await target.truncate(byteLength);
      for (let isSecond = false; ; isSecond = true) {
        await downloadRanges(name, read, target, rangesOf(byteLength), { limit, signal, onRange });
        if (checksum === undefined || (await hasChecksum(target, checksum, signal))) return;
        if (isSecond) throw wrongChecksum(name, checksum);
        addCompleted(-byteLength);
      }
    } finally {
      await target.close();
    }
  });
}

function wrongChecksum(name: string, { algorithm, value }: Checksum): EngineError {
  const message = `The bytes of ${name} do not have the ${algorithm} ${value} that the store lists. Upload the file again.`;
  return new EngineError("invalid_checkpoint", message);
}
