/** Images in object stores (`s3://bucket/key`), read with the service's own permissions. */
import { addAbortSignal, type Readable } from "node:stream";
import type { S3Client } from "@aws-sdk/client-s3";

import { EngineError } from "../contract/errors.ts";
import { readBounded } from "./bounded-bytes.ts";
import { withoutEncoding } from "./content-encoding.ts";
import { describeReference } from "./describe-reference.ts";
import { fetchAlways } from "./image-source.ts";
import type { ConnectedImageSource, FetchedImage, FetchIfChangedOptions } from "./image-source.ts";
import { isPassingS3Failure, isWithoutRegion } from "./s3-failures.ts";

export interface S3ImageSourceOptions {
  /** Called once, by the first image that needs it, because loading the SDK takes longer than the rest of the start. */
  readonly createClient: () => S3Client | Promise<S3Client>;
}

/** S3's own limit on keys. */
const MAX_KEY_BYTES = 1024;

/** The SDK repeats a call that fails, but not one whose object breaks off while it is read. */
const MAX_READS = 3;

/**
 * The key is everything after the bucket's slash: there is no percent-decoding, and `?` and `#` are part of it. The
 * client handles retries of calls, and an object that breaks off is read again. An image's validator is its object's ETag, which changes with the bytes. `close` destroys the
 * client.
 */
export function createS3ImageSource({ createClient }: S3ImageSourceOptions): ConnectedImageSource {
  let client: Promise<S3Client> | null = null;

  async function connect(): Promise<S3Client> {
    return createClient();
  }

  async function fetchIfChanged(
    reference: string,
    { signal, maxImageBytes, onBytes, validator }: FetchIfChangedOptions,
  ): Promise<FetchedImage> {
    signal.throwIfAborted();
    const { bucket, key } = parseS3Reference(reference);
    const { GetObjectCommand } = await import("@aws-sdk/client-s3");
    client ??= connect().catch((error: unknown) => {
      // The next image retries.
      client = null;
      throw error;
    });
    const s3 = await client;
    try {
      const request = { Bucket: bucket, Key: key, ...(validator !== null && { IfNoneMatch: validator }) };
      for (let numReads = 1; ; numReads++) {
        const object = await s3.send(new GetObjectCommand(request), { abortSignal: signal });
        const announcedBytes = object.ContentLength ?? null;
        const body = addAbortSignal(signal, object.Body as Readable);
        const stored = await readBounded(body, { announcedBytes, maxImageBytes, onBytes }).catch((error: unknown) => {
          if (signal.aborted || error instanceof EngineError || numReads === MAX_READS) throw error;
          return null;
        });
        if (stored === null) continue;
        const encoded = { contentEncoding: object.ContentEncoding, maxImageBytes, onBytes };
        const bytes = await withoutEncoding(stored, encoded);
        return { kind: "fetched", bytes, validator: object.ETag ?? null };
      }
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof EngineError) throw error;
      if (validator !== null && isNotModified(error)) return { kind: "unchanged" };
      const message = `The image ${describeReference(reference)} is unreachable: ${explain(error)}.`;
      throw new EngineError("image_unreachable", message, { cause: error, isTransient: isPassingS3Failure(error) });
    }
  }

  async function disconnect(): Promise<void> {
    const closing = client;
    client = null;
    (await closing)?.destroy();
  }

  return {
    schemes: ["s3"],
    fetch: fetchAlways(fetchIfChanged),
    fetchIfChanged,
    disconnect,
    close: disconnect,
  };
}

/** The SDK throws for 304, which has no body and therefore no error code. */
function isNotModified(error: unknown): boolean {
  const metadata = error instanceof Error && "$metadata" in error ? error.$metadata : null;
  return (
    typeof metadata === "object" && metadata !== null && "httpStatusCode" in metadata && metadata.httpStatusCode === 304
  );
}

function parseS3Reference(reference: string): { bucket: string; key: string } {
  const invalid = (reason: string): EngineError =>
    new EngineError("invalid_image_reference", `The image ${describeReference(reference)} ${reason}.`);
  const [, bucket = "", key = ""] = /^s3:\/\/([^/]*)\/?(.*)$/is.exec(reference) ?? [];
  if (bucket === "" || key === "") throw invalid("does not have the form s3://bucket/key");
  if (!/^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/.test(bucket)) throw invalid("does not name a valid bucket");
  if (Buffer.byteLength(key) > MAX_KEY_BYTES) {
    throw invalid(`has a key of ${Buffer.byteLength(key)} bytes; the limit is ${MAX_KEY_BYTES}`);
  }
  return { bucket, key };
}

/** Describes the error by its documented name, because its message may contain host names, key ids and request ids. */
function explain(error: unknown): string {
  const { name } = error instanceof Error ? error : { name: "" };
  if (isWithoutRegion(error)) return "the service has no AWS region in which to look for it";
  switch (name) {
    case "NoSuchKey":
    case "NotFound":
      return "the bucket has no object with that key";
    case "NoSuchBucket":
      return "the bucket does not exist";
    case "AccessDenied":
    case "Forbidden":
      return "the service is not allowed to read it";
    case "ExpiredToken":
    case "ExpiredTokenException":
    case "RequestExpired":
      return "the service's credentials have expired";
    case "CredentialsProviderError":
      return "the service has no credentials for object stores";
    case "InvalidAccessKeyId":
    case "SignatureDoesNotMatch":
    case "InvalidToken":
      return "the object store does not accept the service's credentials";
    case "PermanentRedirect":
      return "the bucket is in another region";
    case "InvalidObjectState":
      return "the object is archived";
    case "TimeoutError":
      return "the object store does not answer";
    default:
      return "the object store is unreachable or failed";
  }
}
