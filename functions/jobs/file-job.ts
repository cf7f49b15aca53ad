/** Jobs that are whole files of lines on S3: OpenAI's Batch input in, its output lines out. */
import { createHash } from "node:crypto";
import type { S3Client } from "@aws-sdk/client-s3";

import type { PreparedLine } from "../batch/answer-line.ts";
import { LINE_ROOM_BYTES } from "../batch/batch-line.ts";
import type { BatchLine } from "../batch/batch-line.ts";
import { readLines } from "../batch/numbered-lines.ts";
import { noLines } from "../batch/result-file.ts";
import { distinctResults } from "../batch/result-files.ts";
import type { ResultLog } from "../batch/result-log.ts";
import { runBatch } from "../batch/run-batch.ts";
import { createSegmentedResultLogs } from "../batch/segmented-result-logs.ts";
import type { WorkWindow } from "../batch/work-window.ts";
import { HttpError } from "../http/errors.ts";
import type { Logger } from "../logger.ts";
import { createS3ObjectStore, createS3Objects } from "../storage/s3-object-store.ts";
import type { FileJob } from "./job-message.ts";
import { answerResult } from "./job-result.ts";
import type { JobResult } from "./job-result.ts";
import { describeTarget } from "./targets.ts";
import type { S3Location } from "./targets.ts";

/** With a kill, answers of this last interval are computed again. */
const FLUSH_MS = 5_000;
const logOptions = { flushMs: FLUSH_MS, retryMs: { first: 500, most: 10_000 }, maxNumAttempts: 20 };
const timeouts = { callMs: 30_000, bodyMs: 120_000 };

export interface FileJobOptions {
  readonly client: S3Client;
  readonly prepareLine: (line: BatchLine) => PreparedLine;
  readonly window: WorkWindow;
  readonly maxBodyBytes: number;
  readonly logger: Logger;
}

/**
 * Answers all lines of the input and writes the output at once, when each has a result. Until then, results are kept in
 * segments below `<output>.parts/`, from which the next attempt resumes. Resolves to null if the engine or `signal` ended
 * the work before. Throws HttpError if there is no input.
 */
export async function runFileJob(
  jobId: string,
  job: FileJob,
  signal: AbortSignal,
  { client, prepareLine, window, maxBodyBytes, logger }: FileJobOptions,
): Promise<JobResult | null> {
  const objects = createS3Objects(client, timeouts);
  const input = await objects.read(locate(job.input));
  if (input === null) {
    const place = describeTarget(job.input);
    throw new HttpError(400, "input_not_found", `input: there is no object ${place}.`, { parameter: "input" });
  }
  const { bucket, key } = job.output;
  const store = createS3ObjectStore({ client, bucket, prefix: `${key}.parts`, timeouts });
  const logs = createSegmentedResultLogs({ store, ...logOptions, logger });
  const name = createHash("sha256").update(jobId).digest("hex").slice(0, 32);
  const log = await logs.open(name, signal);
  try {
    const isComplete = await answerLines(readLines(input.chunks, maxBodyBytes + LINE_ROOM_BYTES), log, {
      prepareLine,
      window,
      signal,
    });
    if (!isComplete) return null;
    await log.flush();
    const counts = await writeOutput(log, (lines) => objects.write(locate(job.output), lines));
    await logs.delete(name);
    const body = { object: "fovea.job.file", output: describeTarget(job.output), request_counts: counts };
    return answerResult(jobId, job.customId ?? jobId, { statusCode: 200, requestId: jobId, body });
  } finally {
    await log.close();
  }
}

async function answerLines(
  lines: ReturnType<typeof readLines>,
  log: ResultLog,
  { prepareLine, window, signal }: Pick<FileJobOptions, "prepareLine" | "window"> & { readonly signal: AbortSignal },
): Promise<boolean> {
  const stopping = new AbortController();
  const stop = (): void => stopping.abort();
  signal.addEventListener("abort", stop, { once: true });
  if (signal.aborted) stop();
  try {
    const { isComplete } = await runBatch({
      lines,
      done: log.done,
      results: { append: (line) => log.append(line), close: async () => {} },
      prepare: (line) => abortable(prepareLine(line), signal),
      window,
      stopping,
      onProgress() {},
    });
    return isComplete;
  } finally {
    signal.removeEventListener("abort", stop);
  }
}

function abortable({ numSequences, answer }: PreparedLine, signal: AbortSignal): PreparedLine {
  return {
    numSequences,
    async answer() {
      const answered = await answer(signal);
      return signal.aborted ? { kind: "given up" } : answered;
    },
  };
}

async function writeOutput(
  log: ResultLog,
  write: (lines: AsyncIterable<Uint8Array>) => Promise<number>,
): Promise<{ readonly total: number; readonly completed: number; readonly failed: number }> {
  const found = noLines();
  async function* lines(): AsyncGenerator<Uint8Array> {
    for await (const { text } of distinctResults(log, null, found)) yield Buffer.from(`${text}\n`);
  }
  await write(lines());
  const total = found.customIds.size + found.badLines.size;
  return { total, completed: found.numSucceeded, failed: total - found.numSucceeded };
}

function locate({ bucket, key }: S3Location) {
  return { Bucket: bucket, Key: key };
}
