/**
 * Results of a whole input as one object of S3. The object is written at once, when every line has a result. Until then,
 * the results are in segments below `<key>.parts/`, from which the next run resumes.
 */
import type { S3Client } from "@aws-sdk/client-s3";

import type { Logger } from "../logger.ts";
import { ConfigError } from "../settings/setting.ts";
import { StorageError } from "../storage/object-store.ts";
import { createS3Objects, createS3ObjectStore } from "../storage/s3-object-store.ts";
import type { S3ObjectLocation } from "../storage/s3-object-store.ts";
import { readLines } from "./numbered-lines.ts";
import { addDone, MAX_RESULT_BYTES, noLines } from "./result-file.ts";
import type { ResultFile } from "./result-file.ts";
import { distinctResults } from "./result-files.ts";
import type { BatchSummary } from "./run-batch.ts";
import { createSegmentedResultLogs } from "./segmented-result-logs.ts";

/** With a kill, answers of this last interval are computed again. */
const FLUSH_MS = 5_000;
const logOptions = { flushMs: FLUSH_MS, retryMs: { first: 500, most: 10_000 }, maxNumAttempts: 20 };
/** Time limits of calls to S3 for inputs and results. */
export const s3Timeouts = { callMs: 30_000, bodyMs: 120_000 };

export interface S3ResultsOptions {
  readonly client: S3Client;
  readonly location: S3ObjectLocation;
  /** Name of the segments: runs with the same name resume each other. */
  readonly name: string;
  /** Whether lines that have a result in the existing object count as done and stay in it. */
  readonly keepsObject: boolean;
  readonly logger: Logger;
  /** Once it is aborted, results that cannot be stored are no longer retried. */
  readonly signal: AbortSignal;
}

export interface S3Results extends ResultFile {
  /**
   * Writes the object and deletes the segments. Rejects with StorageError, before, if the segments lack lines of the
   * complete run that `summary` describes.
   */
  finish(summary: BatchSummary): Promise<ResultCounts>;
}

export interface ResultCounts {
  readonly total: number;
  readonly completed: number;
  readonly failed: number;
}

/** @throws ConfigError for an object that contains something other than results; StorageError if S3 fails. */
export async function openS3Results(options: S3ResultsOptions): Promise<S3Results> {
  const { client, location, name, keepsObject, logger, signal } = options;
  const shown = `s3://${location.Bucket}/${location.Key}`;
  const objects = createS3Objects(client, s3Timeouts);
  const prefix = `${location.Key}.parts`;
  const store = createS3ObjectStore({ client, bucket: location.Bucket, prefix, timeouts: s3Timeouts });
  const logs = createSegmentedResultLogs({ store, ...logOptions, logger });
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
  return {
    done: {
      customIds: earlier.customIds.union(log.done.customIds),
      badLines: earlier.badLines.union(log.done.badLines),
      numSucceeded: earlier.numSucceeded + log.done.numSucceeded,
    },
    append: (line) => log.append(line),
    close: () => log.close(),
    async finish({ numSucceeded, numFailed, numBad, numSkipped }) {
      await log.flush();
      const found = noLines();
      const counts = () => {
        const total = found.customIds.size + found.badLines.size;
        return { total, completed: found.numSucceeded, failed: total - found.numSucceeded };
      };
      const numLines = numSucceeded + numFailed + numBad + numSkipped;
      async function* lines(): AsyncGenerator<Uint8Array> {
        for await (const { text } of distinctResults(allResults, null, found)) yield Buffer.from(`${text}\n`);
        const { total } = counts();
        if (total >= numLines) return;
        throw new StorageError("Reading results", new Error(`the segments have ${total} of ${numLines} lines`));
      }
      // An error of the lines leaves no object.
      await objects.write(location, lines());
      await logs.delete(name);
      return counts();
    },
  };
}

/** Rejects with StorageError if segments cannot be written or deleted. */
export async function probeS3Results(client: S3Client, { Bucket: bucket, Key }: S3ObjectLocation): Promise<void> {
  const store = createS3ObjectStore({ client, bucket, prefix: `${Key}.parts`, timeouts: s3Timeouts });
  await store.write("results/probe", []);
  await store.delete("results/probe");
}
