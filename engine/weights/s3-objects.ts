/** The two S3 calls that a checkpoint needs, with classified failures. Only this file imports the AWS SDK here. */
import { addAbortSignal, Readable } from "node:stream";
import { GetObjectCommand, ListObjectsV2Command, type S3Client } from "@aws-sdk/client-s3";

import { EngineError } from "../contract/errors.ts";
import { TransientDownloadError } from "./parallel-ranges.ts";

export interface S3Location {
  readonly bucket: string;
  /** Empty or ends in "/". */
  readonly prefix: string;
}

export interface S3Object {
  readonly bucket: string;
  readonly key: string;
  /** The key without the location's prefix. */
  readonly name: string;
  readonly eTag: string;
  readonly byteLength: number;
}

/**
 * A checkpoint has at most some hundred files. A prefix with more objects is not a checkpoint and is not listed to its
 * end.
 */
const MAX_LISTED_OBJECTS = 10_000;

/**
 * Lists the objects directly below the prefix, not those in folders. One call per thousand objects.
 *
 * @throws EngineError `invalid_configuration` that names bucket and prefix (absent, not allowed, not reachable).
 */
export async function listObjects(
  client: S3Client,
  { bucket, prefix }: S3Location,
  signal: AbortSignal | undefined,
): Promise<readonly S3Object[]> {
  const objects: S3Object[] = [];
  let continuation: string | undefined;
  do {
    const command = new ListObjectsV2Command({
      Bucket: bucket,
      Prefix: prefix,
      Delimiter: "/",
      ContinuationToken: continuation,
    });
    const page = await client
      .send(command, signal === undefined ? {} : { abortSignal: signal })
      .catch((cause: unknown) => {
        throw explainFailure(cause, `s3://${bucket}/${prefix} cannot be listed`, signal);
      });
    for (const { Key: key, ETag: eTag, Size: byteLength } of page.Contents ?? []) {
      if (key === undefined || eTag === undefined || byteLength === undefined) continue;
      objects.push({ bucket, key, name: key.slice(prefix.length), eTag, byteLength });
    }
    if (objects.length > MAX_LISTED_OBJECTS) {
      throw new EngineError(
        "invalid_configuration",
        `s3://${bucket}/${prefix} contains ${objects.length} objects or more; a checkpoint has at most ${MAX_LISTED_OBJECTS}.`,
      );
    }
    continuation = page.IsTruncated === true ? page.NextContinuationToken : undefined;
  } while (continuation !== undefined);
  return objects;
}

/**
 * Returns bytes `start` (inclusive) to `end` (exclusive) of the object in the listed version.
 *
 * @throws TransientDownloadError, also while reading; EngineError `invalid_checkpoint` if the object vanished or
 * changed since, `invalid_configuration` if it may not be read, `aborted`.
 */
export async function* readRange(
  client: S3Client,
  { bucket, key, eTag, byteLength }: S3Object,
  start: number,
  end: number,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const name = `s3://${bucket}/${key}`;
  const command = new GetObjectCommand({ Bucket: bucket, Key: key, IfMatch: eTag, Range: `bytes=${start}-${end - 1}` });
  try {
    const response = await client.send(command, { abortSignal: signal });
    if (!(response.Body instanceof Readable)) throw new TransientDownloadError(`${name} was sent without a body.`);
    const isPart = response.ContentRange?.startsWith(`bytes ${start}-${end - 1}/`) ?? end - start === byteLength;
    // The SDK watches the signal only until the headers arrive.
    const body = addAbortSignal(signal, response.Body);
    if (!isPart) {
      body.destroy();
      throw new EngineError("invalid_configuration", `${name}: the server does not support ranges of an object.`);
    }
    yield* body as AsyncIterable<Uint8Array>;
  } catch (cause) {
    throw explainFailure(cause, `${name} cannot be read`, signal);
  }
}

function explainFailure(cause: unknown, failure: string, signal: AbortSignal | undefined): Error {
  if (cause instanceof EngineError || cause instanceof TransientDownloadError) return cause;
  if (signal?.aborted === true && signal.reason instanceof Error && signal.reason.name === "TimeoutError") {
    return new TransientDownloadError(`${failure}: no answer in time.`, { cause });
  }
  if (signal?.aborted === true) return new EngineError("aborted", `${failure}: aborted.`, { cause });
  const { name, status } = describeFailure(cause);
  switch (status) {
    case 404:
      return new EngineError(
        name === "NoSuchBucket" ? "invalid_configuration" : "invalid_checkpoint",
        `${failure}: it does not exist (${name}).`,
        { cause },
      );
    case 412:
      return new EngineError("invalid_checkpoint", `${failure}: it changed during the download of the checkpoint.`, {
        cause,
      });
    case 429:
    case 500:
    case 502:
    case 503:
    case 504:
    case null:
      return new TransientDownloadError(`${failure} (${name}).`, { cause });
    default:
      return new EngineError("invalid_configuration", `${failure}: rejected (${name}, status ${status}).`, { cause });
  }
}

/** The status is null if the server was unreachable or its answer broke off. */
function describeFailure(cause: unknown): { readonly name: string; readonly status: number | null } {
  if (!(cause instanceof Error)) return { name: String(cause), status: null };
  const code = "code" in cause && typeof cause.code === "string" ? cause.code : cause.name;
  const metadata = "$metadata" in cause ? (cause.$metadata as { httpStatusCode?: number } | undefined) : undefined;
  return { name: code, status: metadata?.httpStatusCode ?? null };
}
