/** The two S3 calls that a checkpoint needs, with classified failures. Only this file imports the AWS SDK here. */
import { addAbortSignal, Readable } from "node:stream";
import { GetObjectCommand, ListObjectsV2Command, type S3Client } from "@aws-sdk/client-s3";

import { EngineError } from "../../contract/errors.ts";
import type { ObjectLocation } from "../../contract/model-reference.ts";
import { TransientDownloadError } from "../parallel-ranges.ts";
import type { Listing } from "../remote-checkpoint.ts";
import { requireFewObjects } from "./remote-objects.ts";
import type { RemoteObject, RemoteObjects } from "./remote-objects.ts";

export interface S3Object extends RemoteObject {
  readonly bucket: string;
}

/** The caller destroys the client. */
export function createS3Objects(client: S3Client, { bucket, prefix }: ObjectLocation): RemoteObjects {
  return {
    reference: `s3://${bucket}/${prefix}`,
    list: (folder, signal) =>
      listObjects(client, { bucket, prefix: folder === "" ? prefix : `${prefix}${folder}/` }, signal),
    createReader: (object) => readRange.bind(null, client, { ...object, bucket }),
  };
}

/** One call per thousand objects. */
async function listObjects(
  client: S3Client,
  { bucket, prefix }: ObjectLocation,
  signal: AbortSignal | undefined,
): Promise<Listing<S3Object>> {
  const files: S3Object[] = [];
  const folders = new Set<string>();
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
        const error = explainFailure(cause, `s3://${bucket}/${prefix} cannot be listed`, signal);
        // The SDK has tried again by itself.
        if (!(error instanceof TransientDownloadError)) throw error;
        throw new EngineError("invalid_configuration", error.message, { cause: error });
      });
    for (const { Key: key, ETag: eTag, Size: byteLength } of page.Contents ?? []) {
      if (key === undefined || eTag === undefined || byteLength === undefined) continue;
      files.push({ bucket, key, name: key.slice(prefix.length), eTag, byteLength });
    }
    for (const { Prefix: folder = "" } of page.CommonPrefixes ?? []) folders.add(folder.slice(prefix.length, -1));
    requireFewObjects(`s3://${bucket}/${prefix}`, files.length + folders.size);
    continuation = page.IsTruncated === true ? page.NextContinuationToken : undefined;
  } while (continuation !== undefined);
  return { files, folders };
}

/** See `RemoteObjects.createReader`. */
async function* readRange(
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
  // The SDK throws plain errors for a missing region, whose name says nothing.
  const named = cause.name === "Error" ? cause.message : cause.name;
  const code = "code" in cause && typeof cause.code === "string" ? cause.code : named;
  const metadata = "$metadata" in cause ? (cause.$metadata as { httpStatusCode?: number } | undefined) : undefined;
  return { name: code, status: metadata?.httpStatusCode ?? null };
}
