/** Results as objects of a bucket, one per job, whose keys follow from the ids of the jobs. */
import { createHash } from "node:crypto";
import { GetObjectCommand, PutObjectCommand } from "@aws-sdk/client-s3";
import type { S3Client } from "@aws-sdk/client-s3";

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

/** The first result of a job stays: another delivery does not replace it. The caller destroys the client. */
export function createS3ResultSink({ client, location, callMs }: S3ResultSinkOptions): ResultSink {
  const locate = (jobId: string) => ({ Bucket: location.bucket, Key: resultKey(location.key, jobId) });
  const within = (signal: AbortSignal) => ({ abortSignal: AbortSignal.any([signal, AbortSignal.timeout(callMs)]) });

  async function find(jobId: string, signal: AbortSignal): Promise<JobResult | null> {
    try {
      const { Body } = await client.send(new GetObjectCommand(locate(jobId)), within(signal));
      const text = (await Body?.transformToString()) ?? "";
      return { jobId, isSuccess: isSuccess(text), text };
    } catch (error) {
      if (error instanceof Error && error.name === "NoSuchKey") return null;
      throw error;
    }
  }

  return {
    name: describeTarget(location),
    find,
    async put(result, signal) {
      const { jobId, text } = result;
      const request = { ...locate(jobId), Body: text, ContentType: "application/json", IfNoneMatch: "*" };
      try {
        await client.send(new PutObjectCommand(request), within(signal));
        return result;
      } catch (error) {
        if (!isThere(error)) throw error;
        return (await find(jobId, signal)) ?? result;
      }
    },
    async close() {},
  };
}

function isThere(error: unknown): boolean {
  return error instanceof Error && error.name === "PreconditionFailed";
}

function isSuccess(text: string): boolean {
  try {
    const { response } = JSON.parse(text) as { readonly response?: { readonly status_code?: unknown } | null };
    return response?.status_code === 200;
  } catch {
    return false;
  }
}
