/**
 * Results of a whole input as one object of S3. The object is written at once, when every line has a result. Until then,
 * the results are in segments below `<key>.parts/`, from which the next run resumes.
 */
import type { S3Client } from "@aws-sdk/client-s3";

import type { Logger } from "../logger.ts";
import { ConfigError } from "../settings/setting.ts";
import { StorageError } from "../storage/object-store.ts";
import { createS3Objects, createS3ObjectStore } from "../storage/s3-object-store.ts";
import type { S3Metadata, S3ObjectLocation, S3Timeouts } from "../storage/s3-object-store.ts";
import { readLines } from "./numbered-lines.ts";
import { addDone, MAX_RESULT_BYTES, noLines } from "./result-file.ts";
import type { DoneLines, ResultFile } from "./result-file.ts";
import { distinctResults } from "./result-files.ts";
import type { ResultLogs } from "./result-log.ts";
import { createSegmentedResultLogs } from "./segmented-result-logs.ts";

/** With a kill, answers of this last interval are computed again. */
const FLUSH_MS = 5_000;
const logOptions = { flushMs: FLUSH_MS, retryMs: { first: 500, most: 10_000 }, maxNumAttempts: 20 };
/** Time limits of calls to S3 for inputs and results. */
export const s3Timeouts: S3Timeouts = { callMs: 30_000, bodyMs: 120_000 };

export interface S3ResultsOptions {
  readonly client: S3Client;
  readonly location: S3ObjectLocation;
  /** Name of the segments: runs with the same name resume each other. */
  readonly name: string;
  /** Whether lines that have a result in the existing object count as done and stay in it. */
  readonly keepsObject: boolean;
  /** Metadata of the object. */
  readonly metadata?: S3Metadata;
  readonly logger: Logger;
  /** Once it is aborted, results that cannot be stored are no longer retried. */
  readonly signal: AbortSignal;
  /** Default: `s3Timeouts`. */
  readonly timeouts?: S3Timeouts;
}

export interface S3Results extends ResultFile {
  /**
   * Call it when every line has a result. Writes the object and deletes the segments. Rejects with StorageError, before,
   * if one of the results is missing there.
   */
  finish(): Promise<ResultCounts>;
}

export interface ResultCounts {
  readonly total: number;
  readonly completed: number;
  readonly failed: number;
}

/** Of a finished object. */
export async function countResults(chunks: AsyncIterable<Uint8Array>): Promise<ResultCounts> {
  const found = noLines();
  for await (const { text } of readLines(chunks, MAX_RESULT_BYTES)) addDone(found, text);
  return toCounts(found);
}

function toCounts({ customIds, badLines, numSucceeded: completed }: DoneLines): ResultCounts {
  const total = customIds.size + badLines.size;
  return { total, completed, failed: total - completed };
}

/**
 * Deletes the segments of a name, and of all names that begin with it and a dot. Does nothing if there are none. Rejects
 * with StorageError.
 */
export async function deleteS3Segments(
  options: Pick<S3ResultsOptions, "client" | "location" | "name" | "logger" | "timeouts">,
): Promise<void> {
  await createLogs(options).delete(options.name);
}

function createLogs({
  client,
  location: { Bucket: bucket, Key },
  logger,
  timeouts = s3Timeouts,
}: Pick<S3ResultsOptions, "client" | "location" | "logger" | "timeouts">): ResultLogs {
  const store = createS3ObjectStore({ client, bucket, prefix: `${Key}.parts`, timeouts });
  return createSegmentedResultLogs({ store, ...logOptions, logger });
}

/** @throws ConfigError for an object that contains something other than results; StorageError if S3 fails. */
export async function openS3Results(options: S3ResultsOptions): Promise<S3Results> {
  const { client, location, name, keepsObject, metadata, signal, timeouts = s3Timeouts } = options;
  const shown = `s3://${location.Bucket}/${location.Key}`;
  const objects = createS3Objects(client, timeouts);
  const logs = createLogs(options);
  const earlier = noLines();

  async function* readObject(): AsyncGenerator<Uint8Array> {
    if (!keepsObject) return;
    const object = await objects.read(location);
    if (object === null) return;
    yield* object.chunks;
    // The last line may have no end.
    yield Buffer.from("\n");
  }

  for await (const { lineNumber, text } of readLines(readObject(), MAX_RESULT_BYTES)) {
    if (addDone(earlier, text)) continue;
    throw new ConfigError([`${shown} contains something other than results: line ${lineNumber} is not a result.`]);
  }
  const log = await logs.open(name, signal);
  const allResults = {
    async *read() {
      yield* readObject();
      yield* log.read();
    },
  };
  const done = {
    customIds: earlier.customIds.union(log.done.customIds),
    badLines: earlier.badLines.union(log.done.badLines),
    numSucceeded: earlier.numSucceeded + log.done.numSucceeded,
  };
  /** All results that the object must have. */
  const expected = { customIds: new Set(done.customIds), badLines: new Set(done.badLines) };
  return {
    done,
    append(line) {
      if (line.response === null && line.error !== null) expected.badLines.add(line.error.line);
      else if (line.custom_id !== null) expected.customIds.add(line.custom_id);
      return log.append(line);
    },
    close: () => log.close(),
    async finish() {
      await log.flush();
      const found = noLines();
      async function* lines(): AsyncGenerator<Uint8Array> {
        for await (const { text } of distinctResults(allResults, null, found)) yield Buffer.from(`${text}\n`);
        const numMissing =
          expected.customIds.difference(found.customIds).size + expected.badLines.difference(found.badLines).size;
        if (numMissing === 0) return;
        throw new StorageError("Reading results", new Error(`the results of ${numMissing} lines are missing`));
      }
      // An error of the lines leaves no object.
      await objects.write(location, lines(), metadata);
      await logs.delete(name);
      return toCounts(found);
    },
  };
}

/** Rejects with StorageError if segments cannot be written or deleted. */
export async function probeS3Results(client: S3Client, { Bucket: bucket, Key }: S3ObjectLocation): Promise<void> {
  const store = createS3ObjectStore({ client, bucket, prefix: `${Key}.parts`, timeouts: s3Timeouts });
  await store.write("results/probe", []);
  await store.delete("results/probe");
}
