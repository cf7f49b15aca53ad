/** Reads one remote file in parallel ranges, with retries, and writes each range at its place in a local file. */
import type { FileHandle } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";

/**
 * Object stores serve one connection at about 50 to 100 MB/s. With ranges this large, the cost of a request is small.
 */
export const RANGE_BYTES = 8 * 1024 * 1024;

/** Enough for a 10 Gbit/s link, and below the socket limit of the AWS SDK. */
export const MAX_PARALLEL_RANGES = 16;

/** The network delivers 64 kB at a time. A system call for each would take longer than copying. */
const WRITE_BYTES = 1024 * 1024;

const MAX_ATTEMPTS = 5;
const FIRST_RETRY_DELAY_MS = 200;

/** A range slower than 70 kB/s is stuck. */
const RANGE_TIMEOUT_MS = 120_000;

/** Worth another attempt: the connection broke, the server was busy, or too few bytes arrived. */
export class TransientDownloadError extends Error {
  override readonly name = "TransientDownloadError";
  /** The time to wait that the server asked for; null if it did not. */
  readonly retryAfterMs: number | null;

  constructor(message: string, { retryAfterMs = null, ...options }: TransientOptions = {}) {
    super(message, options);
    this.retryAfterMs = retryAfterMs;
  }
}

interface TransientOptions extends ErrorOptions {
  readonly retryAfterMs?: number | null;
}

export interface RemoteFile {
  /** Path below the checkpoint, with `/`. */
  readonly name: string;
  readonly byteLength: number;
}

/**
 * Yields bytes `start` (inclusive) to `end` (exclusive). Throws TransientDownloadError, also while reading, and
 * EngineError for failures that another attempt does not change.
 */
export type ReadRange = (start: number, end: number, signal: AbortSignal) => AsyncIterable<Uint8Array>;

export interface Range {
  readonly start: number;
  /** Exclusive. */
  readonly end: number;
}

/** The ranges of a file in their order. */
export function rangesOf(byteLength: number): readonly Range[] {
  return Array.from({ length: Math.ceil(byteLength / RANGE_BYTES) }, (_, index) => ({
    start: index * RANGE_BYTES,
    end: Math.min((index + 1) * RANGE_BYTES, byteLength),
  }));
}

export interface DownloadRangesOptions {
  /** Shared by all files of a checkpoint. */
  readonly limit: Limit;
  readonly signal: AbortSignal;
  /** Called when a range is in the file. Its promise is awaited. */
  readonly onRange: (range: Range) => Promise<void> | void;
}

/** Resolves when all ranges are written. Waits for all of them before it rejects, so that the file can be closed. */
export async function downloadRanges(
  name: string,
  read: ReadRange,
  target: FileHandle,
  ranges: readonly Range[],
  { limit, signal, onRange }: DownloadRangesOptions,
): Promise<void> {
  const running = ranges.map((range) =>
    limit(async () => {
      signal.throwIfAborted();
      await downloadRange(name, read, target, range, signal);
      await onRange(range);
    }),
  );
  const failed = (await Promise.allSettled(running)).find((result) => result.status === "rejected");
  if (failed !== undefined) throw failed.reason;
}

/** An attempt continues where the last one ended. */
async function downloadRange(
  name: string,
  read: ReadRange,
  target: FileHandle,
  { start, end }: Range,
  signal: AbortSignal,
): Promise<void> {
  const written = { position: start };
  await withRetries(signal, async () => {
    const attemptSignal = AbortSignal.any([signal, AbortSignal.timeout(RANGE_TIMEOUT_MS)]);
    await writeRange(target, read(written.position, end, attemptSignal), written, end);
    if (written.position === end) return;
    throw new TransientDownloadError(`The download of ${name} stopped at byte ${written.position} of ${end}.`);
  });
}

/** Calls `attempt` again after a TransientDownloadError, up to a limit, and waits in between. */
export async function withRetries<Result>(signal: AbortSignal, attempt: () => Promise<Result>): Promise<Result> {
  for (let numAttempts = 1; ; numAttempts++) {
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof TransientDownloadError) || numAttempts === MAX_ATTEMPTS) throw error;
      const delayMs = error.retryAfterMs ?? FIRST_RETRY_DELAY_MS * 2 ** (numAttempts - 1);
      await delay(delayMs, undefined, { signal });
    }
  }
}

/** Advances `written.position` past the bytes in the file, also if the source throws. */
async function writeRange(
  target: FileHandle,
  source: AsyncIterable<Uint8Array>,
  written: { position: number },
  end: number,
): Promise<void> {
  let chunks: Uint8Array[] = [];
  let numWaiting = 0;
  const flush = async (): Promise<void> => {
    if (numWaiting === 0) return;
    const { bytesWritten } = await target.writev(chunks, written.position);
    if (bytesWritten !== numWaiting) throw new Error(`ENOSPC: ${bytesWritten} of ${numWaiting} bytes were written`);
    written.position += bytesWritten;
    chunks = [];
    numWaiting = 0;
  };
  try {
    for await (const bytes of source) {
      if (written.position + numWaiting + bytes.byteLength > end) {
        throw new TransientDownloadError("more bytes arrived than were requested");
      }
      chunks.push(bytes);
      numWaiting += bytes.byteLength;
      if (numWaiting >= WRITE_BYTES) await flush();
    }
  } catch (error) {
    // A broken connection does not invalidate the bytes before it.
    if (error instanceof TransientDownloadError) await flush();
    throw error;
  }
  await flush();
}

export type Limit = (run: () => Promise<void>) => Promise<void>;

/** Runs at most `maxRunning` calls at once, in order. */
export function createLimit(maxRunning: number): Limit {
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
