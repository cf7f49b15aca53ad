/** Inputs and results of `fovea batch` on S3. */
import { Readable } from "node:stream";
import type { S3Client } from "@aws-sdk/client-s3";

import { openS3Results, probeS3Results, s3Timeouts } from "../batch/s3-results.ts";
import type { S3Results } from "../batch/s3-results.ts";
import { loadS3ClientFactory } from "../compose.ts";
import { describeTarget } from "../jobs/targets.ts";
import type { S3Location } from "../jobs/targets.ts";
import type { Logger } from "../logger.ts";
import type { Config } from "../settings/config.ts";
import { ConfigError } from "../settings/setting.ts";
import { createS3Objects } from "../storage/s3-object-store.ts";
import type { Progress } from "./progress.ts";
import { describeS3Failure } from "./s3-failure.ts";

/** Segments of one output: every run of the command resumes them. */
const logName = "batch";

/** Failures of S3 become ConfigErrors, because nothing has been computed yet. */
export interface S3BatchFiles {
  /** Resolves to a function that may be called once. */
  readonly openInput: (location: S3Location) => Promise<(show: (progress: Progress) => void) => Readable>;
  readonly openResults: (location: S3Location, logger: Logger, signal: AbortSignal) => Promise<S3Results>;
  readonly close: () => void;
}

export async function openS3BatchFiles(config: Config): Promise<S3BatchFiles> {
  const client = (await loadS3ClientFactory(config))();
  return {
    openInput: (location) =>
      explained(`--input ${describeTarget(location)} cannot be read`, config, () => openInput(client, location)),
    openResults: (location, logger, signal) =>
      explained(`--output ${describeTarget(location)} cannot be written`, config, async () => {
        await probeS3Results(client, locate(location));
        const options = { client, location: locate(location), name: logName, keepsObject: true, logger, signal };
        return openS3Results(options);
      }),
    close: () => client.destroy(),
  };
}

/** The returned function may be called once. */
async function openInput(client: S3Client, location: S3Location) {
  const object = await createS3Objects(client, s3Timeouts).read(locate(location));
  if (object === null)
    throw new ConfigError([`--input ${describeTarget(location)} cannot be read: there is no such object.`]);
  const { numBytes, chunks } = object;
  return (show: (progress: Progress) => void): Readable => {
    async function* counted(): AsyncGenerator<Uint8Array> {
      let completed = 0;
      for await (const chunk of chunks) {
        yield chunk;
        completed += chunk.byteLength;
        show({ task: "input", completed, total: numBytes, unit: "bytes" });
      }
    }
    return Readable.from(counted());
  };
}

function locate({ bucket, key }: S3Location) {
  return { Bucket: bucket, Key: key };
}

/** Turns failures of S3 into ConfigErrors: nothing has been computed yet. */
async function explained<Value>(what: string, config: Config, open: () => Promise<Value>): Promise<Value> {
  try {
    return await open();
  } catch (error) {
    const failure = describeS3Failure(error, config);
    if (failure === null) throw error;
    throw new ConfigError([`${what}: ${failure.reason}. ${failure.advice}`]);
  }
}
