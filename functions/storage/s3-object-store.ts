/** A prefix of an S3 bucket as an object store. */
import { addAbortSignal } from "node:stream";
import type { Readable } from "node:stream";
import { setImmediate } from "node:timers/promises";
import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  UploadPartCommand,
} from "@aws-sdk/client-s3";
import type { GetObjectCommandOutput, S3Client, _Object as S3Object } from "@aws-sdk/client-s3";

import { isPassingS3Failure } from "../../engine/index.ts";
import { checkKey, splitPrefix, StorageError } from "./object-store.ts";
import type { ObjectStore, StoredObject } from "./object-store.ts";

/** S3 accepts parts of 5 MiB and more, and 10,000 of them: objects of up to 80 GB. */
const PART_BYTES = 8 * 1024 ** 2;
/**
 * An object is read in ranges of this size, one call each. A reader may pause as long as it likes between two of them,
 * and each download has at most one in memory.
 */
const RANGE_BYTES = 2 * 1024 ** 2;
/** Readers get a range in pieces, between which the event loop does other work, because they may parse each line. */
const PIECE_BYTES = 64 * 1024;

/** Time limits of one call, including its retries. Without them, a call to a server that does not answer never ends. */
export interface S3Timeouts {
  /** For a call with little data: a list, a small object, a deletion. */
  readonly callMs: number;
  /** For a call that transfers a part or a range of an object. */
  readonly bodyMs: number;
  /** Ends all calls. */
  readonly signal?: AbortSignal;
}

export interface S3ObjectStoreOptions {
  readonly client: S3Client;
  readonly bucket: string;
  /** Without slashes at its ends; may be empty. */
  readonly prefix: string;
  readonly timeouts: S3Timeouts;
}

export type S3ObjectLocation = Readonly<{ Bucket: string; Key: string }>;

/** By name in lower case, with values of ASCII. */
export type S3Metadata = Readonly<Record<string, string>>;

export interface S3StoredObject extends StoredObject {
  /** Of this version of the object; undefined if the server names none. */
  readonly etag: string | undefined;
  readonly metadata: S3Metadata;
}

/** Reads and writes whole objects anywhere in S3. Errors of S3 are StorageErrors. */
export interface S3Objects {
  /** See `ObjectStore.write`. */
  write(
    location: S3ObjectLocation,
    chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
    metadata?: S3Metadata,
  ): Promise<number>;
  /** Null if the object does not exist. */
  read(location: S3ObjectLocation): Promise<S3StoredObject | null>;
}

/** Objects longer than a part are uploaded in several parts, and read in ranges. */
export function createS3Objects(client: S3Client, timeouts: S3Timeouts): S3Objects {
  const { callMs, bodyMs, signal } = timeouts;

  /** Null if the object does not exist. */
  async function readRange(
    location: S3ObjectLocation,
    first: number,
    timeoutMs: number,
    etag?: string,
  ): Promise<Range | null> {
    const request = { ...location, Range: `bytes=${first}-${first + RANGE_BYTES - 1}`, IfMatch: etag };
    return send("Reading", { timeoutMs, signal }, async (options) => {
      try {
        return await toRange(await client.send(new GetObjectCommand(request), options), options.abortSignal);
      } catch (error) {
        return emptyIfBeyondEnd(error, first);
      }
    });
  }

  async function* readRest(location: S3ObjectLocation, { bytes, numBytes, etag }: Range): AsyncGenerator<Uint8Array> {
    yield* inPieces(bytes);
    for (let first = bytes.byteLength; first < numBytes;) {
      // The tag ensures that all ranges belong to one version of the object.
      const range = await readRange(location, first, bodyMs, etag);
      if (range === null || range.bytes.byteLength === 0) {
        throw new StorageError("Reading on S3", new Error("the object was deleted during the read"));
      }
      yield* inPieces(range.bytes);
      first += range.bytes.byteLength;
    }
  }

  return {
    async write(location, chunks, metadata = {}) {
      const upload = new PartedUpload(client, { location, metadata }, timeouts);
      try {
        for await (const chunk of chunks) await upload.add(chunk);
        await upload.complete();
        return upload.numBytes;
      } catch (error) {
        await upload.abort();
        throw error;
      }
    },
    async read(location) {
      const range = await readRange(location, 0, callMs);
      if (range === null) return null;
      const { numBytes, etag, metadata } = range;
      return { numBytes, etag, metadata, chunks: readRest(location, range) };
    },
  };
}

/** `close` destroys the client. */
export function createS3ObjectStore({ client, bucket, prefix, timeouts }: S3ObjectStoreOptions): ObjectStore {
  const start = prefix === "" ? "" : `${prefix}/`;
  const inTime = { timeoutMs: timeouts.callMs, signal: timeouts.signal };
  const objects = createS3Objects(client, timeouts);
  const locate = (key: string): S3ObjectLocation => {
    checkKey(key);
    return { Bucket: bucket, Key: start + key };
  };

  async function* entries(keyPrefix: string): AsyncGenerator<S3Object> {
    splitPrefix(keyPrefix);
    let token: string | undefined;
    do {
      const request = { Bucket: bucket, Prefix: start + keyPrefix, ContinuationToken: token };
      const page = await send("Listing", inTime, (options) => client.send(new ListObjectsV2Command(request), options));
      yield* page.Contents ?? [];
      token = page.NextContinuationToken;
    } while (token !== undefined);
  }

  return {
    write: async (key, chunks) => objects.write(locate(key), chunks),
    read: async (key) => objects.read(locate(key)),

    async delete(key) {
      const location = locate(key);
      await send("Deleting", inTime, (options) => client.send(new DeleteObjectCommand(location), options));
    },

    async list(keyPrefix) {
      const keys: string[] = [];
      for await (const { Key = "" } of entries(keyPrefix)) keys.push(Key.slice(start.length));
      return keys.sort();
    },

    async measure(keyPrefix) {
      let numObjects = 0;
      let numBytes = 0;
      for await (const { Size = 0 } of entries(keyPrefix)) {
        numObjects += 1;
        numBytes += Size;
      }
      return { numObjects, numBytes };
    },

    async close() {
      client.destroy();
    },
  };
}

/** The upload of one object, with one part in memory. Mutable. */
class PartedUpload {
  readonly #client: S3Client;
  readonly #location: S3ObjectLocation;
  readonly #metadata: S3Metadata;
  readonly #timeouts: S3Timeouts;
  #pending: Uint8Array[] = [];
  #numPendingBytes = 0;
  /** Null while all bytes fit into one part. */
  #uploadId: string | null = null;
  readonly #etags: (string | undefined)[] = [];
  numBytes = 0;

  constructor(
    client: S3Client,
    { location, metadata }: { readonly location: S3ObjectLocation; readonly metadata: S3Metadata },
    timeouts: S3Timeouts,
  ) {
    this.#client = client;
    this.#location = location;
    this.#metadata = metadata;
    this.#timeouts = timeouts;
  }

  async add(chunk: Uint8Array): Promise<void> {
    if (this.#numPendingBytes >= PART_BYTES) await this.#sendPart();
    this.#pending.push(chunk);
    this.#numPendingBytes += chunk.byteLength;
    this.numBytes += chunk.byteLength;
  }

  async complete(): Promise<void> {
    const { callMs, bodyMs, signal } = this.#timeouts;
    if (this.#uploadId === null) {
      const timeoutMs = this.#numPendingBytes > RANGE_BYTES ? bodyMs : callMs;
      const request = { ...this.#location, Metadata: this.#metadata, Body: this.#takePending() };
      await send("Writing", { timeoutMs, signal }, (options) =>
        this.#client.send(new PutObjectCommand(request), options),
      );
      return;
    }
    await this.#sendPart();
    const Parts = this.#etags.map((ETag, index) => ({ ETag, PartNumber: index + 1 }));
    const request = { ...this.#location, UploadId: this.#uploadId, MultipartUpload: { Parts } };
    await send("Writing", { timeoutMs: bodyMs, signal }, (options) =>
      this.#client.send(new CompleteMultipartUploadCommand(request), options),
    );
  }

  /** Never rejects: the bucket's lifecycle rules remove leftover parts. Does not wait once the calls are ended. */
  async abort(): Promise<void> {
    if (this.#uploadId === null) return;
    const request = { ...this.#location, UploadId: this.#uploadId };
    const { callMs, signal } = this.#timeouts;
    const aborting = send("Aborting an upload", { timeoutMs: callMs }, (options) =>
      this.#client.send(new AbortMultipartUploadCommand(request), options),
    ).catch(() => {});
    if (signal?.aborted !== true) await aborting;
  }

  async #sendPart(): Promise<void> {
    const { callMs, bodyMs, signal } = this.#timeouts;
    this.#uploadId ??= await send("Writing", { timeoutMs: callMs, signal }, async (options) => {
      const request = { ...this.#location, Metadata: this.#metadata };
      const { UploadId } = await this.#client.send(new CreateMultipartUploadCommand(request), options);
      if (UploadId === undefined) throw new Error("S3 did not return an upload id.");
      return UploadId;
    });
    const part = { PartNumber: this.#etags.length + 1, UploadId: this.#uploadId, Body: this.#takePending() };
    const command = new UploadPartCommand({ ...this.#location, ...part });
    const { ETag } = await send("Writing", { timeoutMs: bodyMs, signal }, (options) =>
      this.#client.send(command, options),
    );
    this.#etags.push(ETag);
  }

  #takePending(): Uint8Array {
    const bytes = Buffer.concat(this.#pending);
    this.#pending = [];
    this.#numPendingBytes = 0;
    return bytes;
  }
}

interface Range {
  readonly bytes: Uint8Array;
  /** Size of the whole object. */
  readonly numBytes: number;
  readonly etag: string | undefined;
  readonly metadata: S3Metadata;
}

async function* inPieces(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  for (let start = 0; start < bytes.byteLength; start += PIECE_BYTES) {
    yield bytes.subarray(start, start + PIECE_BYTES);
    await setImmediate();
  }
}

/** Throws if the body stalls until the signal is aborted, or has another length than its headers say. */
async function toRange(
  { Body, ContentLength, ContentRange, ETag, Metadata }: GetObjectCommandOutput,
  signal: AbortSignal,
): Promise<Range> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of addAbortSignal(signal, Body as Readable)) chunks.push(chunk as Uint8Array);
  const bytes = Buffer.concat(chunks);
  if (bytes.byteLength !== ContentLength) {
    throw new Error(`S3 sent ${bytes.byteLength} of ${ContentLength} bytes.`);
  }
  const numBytes = Number(/\/(\d+)$/.exec(ContentRange ?? "")?.[1] ?? bytes.byteLength);
  return { bytes, numBytes, etag: ETag, metadata: Metadata ?? {} };
}

/** An empty object has no ranges at all. Null if the object does not exist. */
function emptyIfBeyondEnd(error: unknown, first: number): Range | null {
  if (!(error instanceof Error)) throw error;
  if (error.name === "NoSuchKey") return null;
  if (isBeyondEnd(error) && first === 0) return { bytes: new Uint8Array(), numBytes: 0, etag: undefined, metadata: {} };
  throw error;
}

function isBeyondEnd(error: Error): boolean {
  const metadata = "$metadata" in error ? (error.$metadata as { readonly httpStatusCode?: number }) : {};
  return error.name === "InvalidRange" || metadata.httpStatusCode === 416;
}

/** Sends one call. Throws StorageError whose message starts with `action`. */
async function send<Output>(
  action: string,
  { timeoutMs, signal }: { readonly timeoutMs: number; readonly signal?: AbortSignal | undefined },
  call: (options: { readonly abortSignal: AbortSignal }) => Promise<Output>,
): Promise<Output> {
  const timeout = AbortSignal.timeout(timeoutMs);
  try {
    return await call({ abortSignal: signal === undefined ? timeout : AbortSignal.any([timeout, signal]) });
  } catch (error) {
    const cause = timeout.aborted ? new Error(`S3 did not answer within ${timeoutMs} ms`, { cause: error }) : error;
    throw new StorageError(`${action} on S3`, cause, { isOutage: timeout.aborted || isPassingS3Failure(error) });
  }
}
