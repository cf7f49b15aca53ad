/** Results as objects of a bucket, one per job, whose keys follow from the ids of the jobs. */
import { createHash } from "node:crypto";
import { GetObjectCommand, PutObjectCommand } from "@aws-sdk/client-s3";
import type { PutObjectCommandInput, S3Client } from "@aws-sdk/client-s3";

import type { Logger } from "../../logger.ts";
import type { S3ObjectLocation } from "../../storage/s3-object-store.ts";
import type { JobKey } from "../job-key.ts";
import { storedResult } from "../job-result.ts";
import type { JobResult } from "../job-result.ts";
import type { ResultSink } from "../result-sink.ts";
import { describeTarget } from "../targets.ts";
import type { S3Location } from "../targets.ts";

export interface S3ResultSinkOptions {
  readonly client: S3Client;
  /** Its key is the prefix of all results. */
  readonly location: S3Location;
  /** Time limit of one call with its retries. */
  readonly callMs: number;
  readonly logger: Logger;
}

/** Ids that are names of objects as they are. */
const plainId = /^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$/;
/** Ids that could be the SHA-256 of another id. Their own SHA-256 takes their place, so no two jobs share a name. */
const sha256Like = /^[0-9a-f]{64}$/;

/** `<prefix>/<job id>.json`, with the SHA-256 of an id that is not a good name. */
export function resultKey(prefix: string, jobId: string): string {
  const isPlain = plainId.test(jobId) && !sha256Like.test(jobId);
  const name = isPlain ? jobId : createHash("sha256").update(jobId).digest("hex");
  const folder = prefix.replace(/\/+$/, "");
  return `${folder === "" ? "" : `${folder}/`}${name}.json`;
}

/** The message of a result, beside its object: results of earlier versions have none. */
const digestField = "fovea-message";

interface StoredResult {
  readonly result: JobResult;
  readonly etag: string | undefined;
  readonly messageDigest: string | null;
}

/**
 * The first answer to a job stays: another delivery does not replace it. Any other result replaces a refusal, and an
 * answer with status 5xx. If the place has the result of another message with the id of the job, the result goes to
 * `<prefix>/<SHA-256 of the message>/` instead. The caller destroys the client.
 */
export function createS3ResultSink({ client, location, callMs, logger }: S3ResultSinkOptions): ResultSink {
  const within = (signal: AbortSignal) => ({ abortSignal: AbortSignal.any([signal, AbortSignal.timeout(callMs)]) });
  /** The places that a job may have, in order. */
  const placesOf = ({ jobId, messageDigest }: JobKey) => {
    const own = resultKey(location.key, jobId);
    const apart = resultKey(location.key === "" ? messageDigest : `${location.key}/${messageDigest}`, jobId);
    return [own, apart].map((Key) => ({ Bucket: location.bucket, Key }));
  };

  /** Null if there is nothing. */
  async function read(place: S3ObjectLocation, jobId: string, signal: AbortSignal): Promise<StoredResult | null> {
    try {
      const { Body, ETag: etag, Metadata } = await client.send(new GetObjectCommand(place), within(signal));
      const text = (await Body?.transformToString()) ?? "";
      return { result: storedResult(jobId, text), etag, messageDigest: Metadata?.[digestField] ?? null };
    } catch (error) {
      if (error instanceof Error && error.name === "NoSuchKey") return null;
      throw error;
    }
  }

  /** Resolves to the result that the place has now; null if it is that of another message. */
  async function putAt(
    place: S3ObjectLocation,
    { jobId, messageDigest }: JobKey,
    result: JobResult,
    signal: AbortSignal,
  ): Promise<JobResult | null> {
    const about = { ContentType: "application/json", Metadata: { [digestField]: messageDigest } };
    const write = async (condition: Pick<PutObjectCommandInput, "IfMatch" | "IfNoneMatch">): Promise<JobResult> => {
      const request = new PutObjectCommand({ ...place, ...about, Body: result.text, ...condition });
      await client.send(request, within(signal));
      return result;
    };
    try {
      return await write({ IfNoneMatch: "*" });
    } catch (error) {
      if (!isThere(error)) throw error;
      const stored = await read(place, jobId, signal);
      // It was deleted since.
      if (stored === null) throw error;
      if (!isOf(stored, messageDigest)) return null;
      const isOutdated = stored.result.isTransient === true && stored.result.text !== result.text;
      return isOutdated ? write({ IfMatch: stored.etag }) : stored.result;
    }
  }

  return {
    name: describeTarget(location),
    async find(key, signal) {
      for (const place of placesOf(key)) {
        const stored = await read(place, key.jobId, signal);
        if (stored === null) return null;
        if (isOf(stored, key.messageDigest)) return stored.result;
      }
      return null;
    },
    async put(result, key, signal) {
      const { jobId } = key;
      for (const place of placesOf(key)) {
        const standing = await putAt(place, key, result, signal);
        if (standing !== null) return standing;
        const reason = "Another message has the same job id. Give each queue a prefix of its own.";
        logger.warn("The result of another job is in the place of a result.", { jobId, key: place.Key, reason });
      }
      throw new Error(`Results of other messages have all places of the job ${jobId} in ${describeTarget(location)}.`);
    },
    async close() {},
  };
}

function isOf({ messageDigest: stored }: StoredResult, messageDigest: string): boolean {
  return stored === null || stored === messageDigest;
}

function isThere(error: unknown): boolean {
  return error instanceof Error && error.name === "PreconditionFailed";
}
