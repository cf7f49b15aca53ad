/** Downloads large objects in parallel ranges into files that appear only when complete. */
import { open, type FileHandle } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import type { S3Client } from "@aws-sdk/client-s3";

import { EngineError } from "../contract/errors.ts";
import { writeAtomically } from "./atomic-file.ts";
import type { WeightProgress } from "./progress.ts";
import { readRange, TransientDownloadError, type S3Object } from "./s3-objects.ts";

/**
 * Object stores serve one connection at about 50 to 100 MB/s. With ranges this large, the cost of a request is small.
 */
export const RANGE_BYTES = 8 * 1024 * 1024;

/** Enough for a 10 Gbit/s link, and below the SDK's own socket limit. */
const MAX_PARALLEL_RANGES = 16;

/** The network delivers 64 kB at a time. A system call for each would take longer than copying. */
const WRITE_BYTES = 1024 * 1024;

const MAX_ATTEMPTS = 5;
const FIRST_RETRY_DELAY_MS = 200;

/** A range slower than 70 kB/s is stuck. */
const RANGE_TIMEOUT_MS = 120_000;

export interface DownloadOptions {
  readonly onProgress?: ((progress: WeightProgress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface Download {
  readonly object: S3Object;
  /** Absolute path of the downloaded file. */
  readonly file: string;
}

/**
 * Resolves when every file is complete. A permanent failure ends all downloads. Files that are complete by then stay,
 * so that the next start resumes.
 *
 * @throws EngineError like `readRange`, or `invalid_configuration` if the server or the disk keeps failing.
 */
export async function downloadObjects(
  client: S3Client,
  downloads: readonly Download[],
  { onProgress, signal }: DownloadOptions,
): Promise<void> {
  const total = downloads.reduce((sum, { object }) => sum + object.byteLength, 0);
  let completed = 0;
  const addCompleted = (numBytes: number): void => {
    completed += numBytes;
    onProgress?.({ task: "downloading checkpoint", completed, total, unit: "bytes" });
  };
  const ending = new AbortController();
  const endingSignal = signal === undefined ? ending.signal : AbortSignal.any([signal, ending.signal]);
  const limit = createLimit(MAX_PARALLEL_RANGES);

  const settled = downloads.map(async ({ object, file }) => {
    try {
      await writeAtomically(file, `${object.name}, which has ${object.byteLength} bytes`, (target) =>
        downloadObject(client, object, target, limit, addCompleted, endingSignal),
      );
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
  const reason = cause instanceof Error ? cause.message.split(",")[0] : String(cause);
  throw new EngineError("invalid_configuration", `The checkpoint cannot be downloaded: ${reason}`, { cause });
}

async function downloadObject(
  client: S3Client,
  object: S3Object,
  targetFile: string,
  limit: Limit,
  addCompleted: (numBytes: number) => void,
  signal: AbortSignal,
): Promise<void> {
  const target = await open(targetFile, "wx");
  try {
    await target.truncate(object.byteLength);
    const ranges: Promise<void>[] = [];
    for (let start = 0; start < object.byteLength; start += RANGE_BYTES) {
      const end = Math.min(start + RANGE_BYTES, object.byteLength);
      const range = limit(async () => {
        signal.throwIfAborted();
        await downloadRange(client, object, target, start, end, signal);
        addCompleted(end - start);
      });
      ranges.push(range);
    }
    // Wait for all ranges before the file is closed, whatever failed first.
    const failed = (await Promise.allSettled(ranges)).find((result) => result.status === "rejected");
    if (failed !== undefined) throw failed.reason;
  } finally {
    await target.close();
  }
}

async function downloadRange(
  client: S3Client,
  object: S3Object,
  target: FileHandle,
  start: number,
  end: number,
  signal: AbortSignal,
): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      const attemptSignal = AbortSignal.any([signal, AbortSignal.timeout(RANGE_TIMEOUT_MS)]);
      const position = await writeRange(target, readRange(client, object, start, end, attemptSignal), start, end);
      if (position === end) return;
      throw new TransientDownloadError(`The download of ${object.name} stopped at byte ${position} of ${end}.`);
    } catch (error) {
      if (!(error instanceof TransientDownloadError) || attempt === MAX_ATTEMPTS) throw error;
      await delay(FIRST_RETRY_DELAY_MS * 2 ** (attempt - 1), undefined, { signal });
    }
  }
}

/** Returns the position where the bytes ended, which is before `end` if the connection broke. */
async function writeRange(
  target: FileHandle,
  source: AsyncIterable<Uint8Array>,
  start: number,
  end: number,
): Promise<number> {
  let position = start;
  let chunks: Uint8Array[] = [];
  let numWaiting = 0;
  const flush = async (): Promise<void> => {
    const { bytesWritten } = await target.writev(chunks, position);
    if (bytesWritten !== numWaiting) throw new Error(`ENOSPC: ${bytesWritten} of ${numWaiting} bytes were written`);
    position += bytesWritten;
    chunks = [];
    numWaiting = 0;
  };
  for await (const bytes of source) {
    chunks.push(bytes);
    numWaiting += bytes.byteLength;
    if (position + numWaiting > end) throw new TransientDownloadError("more bytes arrived than were requested");
    if (numWaiting >= WRITE_BYTES) await flush();
  }
  if (numWaiting > 0) await flush();
  return position;
}

type Limit = (run: () => Promise<void>) => Promise<void>;

/** Runs at most `maxRunning` calls at once, in order. */
function createLimit(maxRunning: number): Limit {
  const waiting: (() => void)[] = [];
  let numRunning = 0;
  return async (run) => {
    if (numRunning === maxRunning) await new Promise<void>((resolve) => void waiting.push(resolve));
    else numRunning++;
    try {
      await run();
    } finally {
      // A waiting call takes this one's place.
      const next = waiting.shift();
      if (next === undefined) numRunning--;
      else next();
    }
  };
}
