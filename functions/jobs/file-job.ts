/** Jobs that are whole files of lines on S3: OpenAI's Batch input in, its output lines out. */
import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { S3Client } from "@aws-sdk/client-s3";

import type { PreparedLine } from "../batch/answer-line.ts";
import { LINE_ROOM_BYTES } from "../batch/batch-line.ts";
import type { BatchLine } from "../batch/batch-line.ts";
import { readLines } from "../batch/numbered-lines.ts";
import { RetryDelays } from "../batch/retry-delays.ts";
import type { RetryDelaysOptions } from "../batch/retry-delays.ts";
import { runBatch } from "../batch/run-batch.ts";
import type { BatchSummary } from "../batch/run-batch.ts";
import { countResults, deleteS3Segments, openS3Results, s3Timeouts } from "../batch/s3-results.ts";
import type { ResultCounts, S3Results } from "../batch/s3-results.ts";
import type { WorkWindow } from "../batch/work-window.ts";
import { HttpError } from "../http/errors.ts";
import type { Logger } from "../logger.ts";
import { StorageError } from "../storage/object-store.ts";
import { createS3Objects } from "../storage/s3-object-store.ts";
import type { JobKey } from "./job-key.ts";
import type { FileJob } from "./job-message.ts";
import { answerResult } from "./job-result.ts";
import type { JobResult } from "./job-result.ts";
import { describeTarget } from "./targets.ts";
import type { S3Location } from "./targets.ts";

export interface FileJobOptions {
  readonly client: S3Client;
  readonly prepareLine: (line: BatchLine) => PreparedLine;
  readonly window: WorkWindow;
  readonly maxBodyBytes: number;
  /** Delays before another attempt while S3 does not work. */
  readonly retry: RetryDelaysOptions;
  readonly logger: Logger;
}

/** Time that calls to S3 have once the job is to end, so that it returns to its queue in time while S3 hangs. */
const LAST_CALLS_MS = 2_000;

/** The job and the input of an output, beside its object. */
const sourceField = "fovea-source";

/**
 * Answers all lines of the input and writes the output at once, when each has a result. Until then, results are kept in
 * segments below `<output>.parts/`, from which the next attempt at the same version of the input resumes. An output that
 * an earlier attempt wrote from the same input stays. While S3 does not work, the job waits for it. Resolves to null if
 * the engine ended the work before, and to null or an error if `signal` did. Throws HttpError if there is no input, and
 * StorageError if S3 refuses a call.
 */
export async function runFileJob(
  key: JobKey,
  job: FileJob,
  signal: AbortSignal,
  options: FileJobOptions,
): Promise<JobResult | null> {
  const { retry, logger } = options;
  const { jobId } = key;
  const delays = new RetryDelays(retry);
  for (let isInTrouble = false; ; isInTrouble = true) {
    try {
      const result = await tryFileJob(key, job, signal, options);
      if (isInTrouble) logger.info("S3 works again for the job of a file.", { jobId });
      return result;
    } catch (error) {
      if (signal.aborted || !(error instanceof StorageError && error.isOutage)) throw error;
      if (!isInTrouble) logger.error("S3 does not work; the job of a file waits for it.", { jobId, error });
    }
    await sleep(delays.afterFailure(jobId), null, { signal });
  }
}

/** Throws StorageError if S3 does not work. */
async function tryFileJob(
  { jobId, messageDigest }: JobKey,
  job: FileJob,
  signal: AbortSignal,
  { client, prepareLine, window, maxBodyBytes, logger }: FileJobOptions,
): Promise<JobResult | null> {
  const timeouts = { ...s3Timeouts, signal: abortedAfter(signal, LAST_CALLS_MS) };
  const objects = createS3Objects(client, timeouts);
  const input = await objects.read(locate(job.input));
  if (input === null) {
    const place = describeTarget(job.input);
    throw new HttpError(400, "input_not_found", `input: there is no object ${place}.`, { parameter: "input" });
  }
  const version = input.etag ?? "";
  const name = digest(jobId, messageDigest).slice(0, 32);
  const source = digest(jobId, messageDigest, version);
  const segments = { client, location: locate(job.output), logger, timeouts };
  const finish = async (counts: ResultCounts): Promise<JobResult> => {
    // Also those of other versions of the input.
    await deleteS3Segments({ ...segments, name });
    const body = { object: "fovea.job.file", output: describeTarget(job.output), request_counts: counts };
    return answerResult(jobId, job.customId ?? jobId, { statusCode: 200, requestId: jobId, body });
  };
  const written = await objects.read(locate(job.output));
  if (written?.metadata[sourceField] === source) return finish(await countResults(written.chunks));
  const results = await openS3Results({
    ...segments,
    name: `${name}.${digest(version).slice(0, 32)}`,
    // Another job may have written it.
    keepsObject: false,
    metadata: { [sourceField]: source },
    signal,
  });
  try {
    const lines = readLines(input.chunks, maxBodyBytes + LINE_ROOM_BYTES);
    const summary = await answerLines(lines, results, { prepareLine, window, logger, signal });
    if (!summary.isComplete) return null;
    return await finish(await results.finish());
  } finally {
    await results.close();
  }
}

/** Aborted `delayMs` after `signal`. */
function abortedAfter(signal: AbortSignal, delayMs: number): AbortSignal {
  const controller = new AbortController();
  const begin = (): void => void setTimeout(() => controller.abort(signal.reason), delayMs).unref();
  signal.addEventListener("abort", begin, { once: true });
  if (signal.aborted) begin();
  return controller.signal;
}

async function answerLines(
  lines: ReturnType<typeof readLines>,
  results: S3Results,
  {
    prepareLine,
    window,
    logger,
    signal,
  }: Pick<FileJobOptions, "prepareLine" | "window" | "logger"> & { readonly signal: AbortSignal },
): Promise<BatchSummary> {
  const stopping = new AbortController();
  const stop = (): void => stopping.abort();
  signal.addEventListener("abort", stop, { once: true });
  if (signal.aborted) stop();
  try {
    return await runBatch({
      lines,
      done: results.done,
      results,
      prepare: (line) => abortable(prepareLine(line), signal),
      window,
      stopping,
      logger,
      onProgress() {},
    });
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

/** SHA-256 in hexadecimal digits. */
function digest(...parts: readonly string[]): string {
  return createHash("sha256").update(JSON.stringify(parts)).digest("hex");
}

function locate({ bucket, key }: S3Location) {
  return { Bucket: bucket, Key: key };
}
