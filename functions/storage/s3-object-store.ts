/** A prefix of an S3 bucket as object store. */
import type { GetObjectCommandOutput, S3Client, _Object as S3Object } from "@aws-sdk/client-s3";
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

import { checkKey, splitPrefix, StorageError } from "./object-store.ts";
import type { ObjectStore } from "./object-store.ts";

/** S3 takes parts of 5 MiB and more, and 10,000 of them: objects of up to 80 GB. */
const PART_BYTES = 8 * 1024 ** 2;
/** For one call, retries included; without it a call to a network that swallows packets never ends. */
const CALL_TIMEOUT_MS = 60_000;

export interface S3ObjectStoreOptions {
  readonly client: S3Client;
  readonly bucket: string;
  /** Without slashes at its ends; may be empty. */
  readonly prefix: string;
}

type Location = Readonly<{ Bucket: string; Key: string }>;

/** Objects longer than a part are uploaded in several. The store destroys the client on `close`. */
export function createS3ObjectStore({ client, bucket, prefix }: S3ObjectStoreOptions): ObjectStore {
  const start = prefix === "" ? "" : `${prefix}/`;
  const locate = (key: string): Location => {
    checkKey(key);
    return { Bucket: bucket, Key: start + key };
  };

  async function* entries(keyPrefix: string): AsyncGenerator<S3Object> {
    splitPrefix(keyPrefix);
    let token: string | undefined;
    do {
      const request = { Bucket: bucket, Prefix: start + keyPrefix, ContinuationToken: token };
      const page = await attempt("Listing", () => client.send(new ListObjectsV2Command(request), deadline()));
      yield* page.Contents ?? [];
      token = page.NextContinuationToken;
    } while (token !== undefined);
  }

  return {
    async write(key, chunks) {
      const location = locate(key);
      const upload = new PartedUpload(client, location);
      try {
        for await (const chunk of chunks) await upload.add(chunk);
        await upload.complete();
        return upload.numBytes;
      } catch (error) {
        await upload.abort();
        throw error;
      }
    },

    async read(key) {
      const location = locate(key);
      return attempt("Reading", async () => {
        const object = await client.send(new GetObjectCommand(location), deadline()).catch(nullIfMissing);
        return object === null ? null : { numBytes: object.ContentLength ?? 0, chunks: bodyOf(object) };
      });
    },

    async delete(key) {
      const location = locate(key);
      await attempt("Deleting", () => client.send(new DeleteObjectCommand(location), deadline()));
    },

    async list(keyPrefix) {
      const keys: string[] = [];
      for await (const { Key = "" } of entries(keyPrefix)) keys.push(Key.slice(start.length));
      return keys.sort();
    },

    async measure(keyPrefix) {
      let numBytes = 0;
      for await (const { Size = 0 } of entries(keyPrefix)) numBytes += Size;
      return numBytes;
    },

    async close() {
      client.destroy();
    },
  };
}

/** Mutable; one object. Holds one part in memory. */
class PartedUpload {
  readonly #client: S3Client;
  readonly #location: Location;
  #pending: Uint8Array[] = [];
  #numPendingBytes = 0;
  /** Null as long as all there is fits into one part. */
  #uploadId: string | null = null;
  readonly #etags: (string | undefined)[] = [];
  numBytes = 0;

  constructor(client: S3Client, location: Location) {
    this.#client = client;
    this.#location = location;
  }

  async add(chunk: Uint8Array): Promise<void> {
    if (this.#numPendingBytes >= PART_BYTES) await this.#sendPart();
    this.#pending.push(chunk);
    this.#numPendingBytes += chunk.byteLength;
    this.numBytes += chunk.byteLength;
  }

  async complete(): Promise<void> {
    if (this.#uploadId === null) {
      const request = { ...this.#location, Body: this.#takePending() };
      return void (await attempt("Writing", () => this.#client.send(new PutObjectCommand(request), deadline())));
    }
    await this.#sendPart();
    const Parts = this.#etags.map((ETag, index) => ({ ETag, PartNumber: index + 1 }));
    const request = { ...this.#location, UploadId: this.#uploadId, MultipartUpload: { Parts } };
    await attempt("Writing", () => this.#client.send(new CompleteMultipartUploadCommand(request), deadline()));
  }

  /** Never rejects: what cannot be given up now the bucket's own rules remove. */
  async abort(): Promise<void> {
    if (this.#uploadId === null) return;
    const request = { ...this.#location, UploadId: this.#uploadId };
    await this.#client.send(new AbortMultipartUploadCommand(request), deadline()).catch(() => {});
  }

  async #sendPart(): Promise<void> {
    await attempt("Writing", async () => {
      if (this.#uploadId === null) {
        const { UploadId } = await this.#client.send(new CreateMultipartUploadCommand(this.#location), deadline());
        if (UploadId === undefined) throw new Error("S3 gave the upload no id.");
        this.#uploadId = UploadId;
      }
      const part = { PartNumber: this.#etags.length + 1, UploadId: this.#uploadId, Body: this.#takePending() };
      const { ETag } = await this.#client.send(new UploadPartCommand({ ...this.#location, ...part }), deadline());
      this.#etags.push(ETag);
    });
  }

  #takePending(): Uint8Array {
    const bytes = Buffer.concat(this.#pending);
    this.#pending = [];
    this.#numPendingBytes = 0;
    return bytes;
  }
}

async function* bodyOf({ Body }: GetObjectCommandOutput): AsyncGenerator<Uint8Array> {
  try {
    yield* Body as unknown as AsyncIterable<Uint8Array>;
  } catch (cause) {
    throw new StorageError("Reading", cause);
  }
}

function deadline(): { readonly abortSignal: AbortSignal } {
  return { abortSignal: AbortSignal.timeout(CALL_TIMEOUT_MS) };
}

async function attempt<Value>(action: string, work: () => Promise<Value>): Promise<Value> {
  try {
    return await work();
  } catch (cause) {
    throw cause instanceof StorageError ? cause : new StorageError(`${action} on S3`, cause);
  }
}

function nullIfMissing(error: unknown): null {
  if (error instanceof Error && error.name === "NoSuchKey") return null;
  throw error;
}
