/** Reads a form with one file, which is never in memory as a whole. Only this file imports the form parser. */
import type { ReadableStream } from "node:stream/web";
import { setImmediate as turn } from "node:timers/promises";
import { Busboy } from "@fastify/busboy";
import type { BusboyFileStream, BusboyHeaders } from "@fastify/busboy";

import { RunningTimer } from "../../engine/index.ts";
import { HttpError } from "./errors.ts";

const MAX_FIELDS = 20;
const MAX_FIELD_BYTES = 4096;
const MAX_FILENAME_LENGTH = 255;
/** Maximum bytes of a form in addition to its file. */
export const FORM_ROOM_BYTES = 256 * 1024;
/** A client that sends nothing for this long has gone, or blocks a place. */
const IDLE_MS = 30_000;

export interface Upload<Taken> {
  readonly file: { readonly filename: string; readonly taken: Taken } | null;
  /** By name, including those after the file. */
  readonly fields: ReadonlyMap<string, string>;
}

export interface UploadOptions<Taken> {
  /** Name of the file's field. */
  readonly fileField: string;
  readonly maxFileBytes: number;
  /** Name of the setting that limits a file. */
  readonly limitName: string;
  /** After this time without a byte, an upload ends although it is being read; default 30 s. */
  readonly idleMs?: number;
  /** Reads the file to its end, or rejects with the errors of `chunks`. */
  readonly take: (chunks: AsyncIterable<Uint8Array>) => Promise<Taken>;
  /** Undoes `take` if the form turns out to be broken after the file. */
  readonly giveUp: (taken: Taken) => Promise<void>;
}

/** Mutable. */
interface FoundFile<Taken> {
  stream: BusboyFileStream | null;
  taking: Promise<{ readonly filename: string; readonly taken: Taken }> | null;
}

/**
 * Throws HttpError 400 for a body that is not a form, breaks off or has a second file, 408 for a body that stalls, 413
 * for a file of more than `maxFileBytes` and for a form that is longer than such a file by more than `FORM_ROOM_BYTES`.
 */
export async function receiveUpload<Taken>(request: Request, options: UploadOptions<Taken>): Promise<Upload<Taken>> {
  const announced = Number(request.headers.get("content-length") ?? 0);
  if (announced > options.maxFileBytes + FORM_ROOM_BYTES) throw tooLarge(`${announced} bytes`, options);
  const parser = createParser(request);
  const fields = new Map<string, string>();
  const found: FoundFile<Taken> = { stream: null, taking: null };
  parser.on("field", (name, value) => void fields.set(name, value));
  const failure = Promise.withResolvers<never>();
  // The reader gets errors; an error after its end must not end the process.
  const ignore = (): void => {};
  failure.promise.catch(ignore);
  parser.on("error", failure.reject);
  parser.on("file", (name, stream, filename: string | undefined) => {
    stream.on("error", ignore);
    if (name !== options.fileField) return void stream.resume();
    if (found.taking !== null) {
      return void parser.destroy(new HttpError(400, "invalid_form", `The form contains ${name} twice; send it once.`));
    }
    // The name is absent if only its type makes a part a file.
    const shown = (filename || name).slice(0, MAX_FILENAME_LENGTH);
    found.stream = stream;
    found.taking = options.take(wholeFile(stream, options)).then((taken) => ({ filename: shown, taken }));
    // If the file is no longer read, the parser would wait forever.
    found.taking.catch((error: Error) => parser.destroy(error));
  });
  let problem: unknown = null;
  try {
    const { idleMs = IDLE_MS } = options;
    const body = withDeadlines(request.body as ReadableStream<Uint8Array>, { idleMs, failure: failure.promise });
    const bounded = withinLength(body, options.maxFileBytes + FORM_ROOM_BYTES);
    await Promise.race([parse(bounded, parser, found), failure.promise]);
  } catch (error) {
    problem = error;
    found.stream?.destroy(error as Error);
  }
  const file = await found.taking?.catch((error: unknown) => {
    throw asFormError(error);
  });
  if (problem !== null) {
    if (file !== undefined) await options.giveUp(file.taken);
    throw asFormError(problem);
  }
  return { file: file ?? null, fields };
}

/**
 * Resolves when the form and the body have ended. pipeline() does not fit: the parser may end before the body, which may
 * continue after the form (RFC 2046, section 5.1.1), or never.
 */
async function parse<Taken>(
  body: AsyncIterable<Uint8Array>,
  parser: InstanceType<typeof Busboy>,
  found: FoundFile<Taken>,
): Promise<void> {
  let hasEnded = false;
  parser.once("finish", () => (hasEnded = true));
  for await (const chunk of body) {
    if (!hasEnded) await new Promise<void>((resolve) => parser.write(chunk, () => resolve()));
  }
  parser.end();
  // The parser finishes within one turn of the event loop unless a file delays it.
  await turn();
  await found.taking;
  await turn();
  if (!hasEnded) throw new HttpError(400, "invalid_form", "The form cannot be read: its parts are malformed.");
}

/** The time runs while waiting for a chunk, not while the last one is being processed. Throws what `failure` throws. */
async function* withDeadlines(
  body: ReadableStream<Uint8Array>,
  { idleMs, failure }: { readonly idleMs: number; readonly failure: Promise<never> },
): AsyncGenerator<Uint8Array> {
  const reader = body.getReader();
  try {
    for (;;) {
      const { promise: idle, reject } = Promise.withResolvers<never>();
      const timer = new RunningTimer(idleMs, () => reject(stalled(idleMs)));
      const { done, value } = await Promise.race([reader.read(), idle, failure]).finally(() => timer[Symbol.dispose]());
      if (done) return;
      yield value;
    }
  } finally {
    // The client may have disconnected: then there is nothing to cancel.
    void reader.cancel().catch(() => {});
  }
}

/** Fields that are not read, and what follows the form, count as well. */
async function* withinLength(body: AsyncIterable<Uint8Array>, maxBytes: number): AsyncGenerator<Uint8Array> {
  let numBytes = 0;
  for await (const chunk of body) {
    numBytes += chunk.byteLength;
    if (numBytes > maxBytes) {
      throw new HttpError(
        413,
        "body_too_large",
        `The form has more bytes than a file may have; the limit is ${maxBytes}.`,
        {
          headers: { Connection: "close" },
        },
      );
    }
    yield chunk;
  }
}

function stalled(idleMs: number): HttpError {
  return new HttpError(
    408,
    "body_stalled",
    `No byte of the body arrived for ${idleMs / 1000} s; send the request again.`,
    {
      headers: { Connection: "close" },
    },
  );
}

function createParser(request: Request): InstanceType<typeof Busboy> {
  const contentType = request.headers.get("content-type") ?? "";
  if (!/^multipart\/form-data\s*;/i.test(contentType) || request.body === null) {
    throw new HttpError(400, "unsupported_media_type", "Unsupported Media Type: send the file as multipart/form-data.");
  }
  const headers: BusboyHeaders = { "content-type": contentType };
  const limits = { fields: MAX_FIELDS, fieldSize: MAX_FIELD_BYTES, fieldNameSize: 100, files: 2 };
  try {
    return new Busboy({ headers, limits });
  } catch (cause) {
    throw new HttpError(400, "invalid_form", `The form cannot be read: ${reasonOf(cause)}.`, { cause });
  }
}

async function* wholeFile<Taken>(stream: BusboyFileStream, options: UploadOptions<Taken>): AsyncGenerator<Uint8Array> {
  let numBytes = 0;
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    numBytes += chunk.byteLength;
    if (numBytes > options.maxFileBytes) throw tooLarge("more bytes", options);
    yield chunk;
  }
}

/** An error that is neither ours nor the store's comes from the form. */
function asFormError(error: unknown): unknown {
  const isForm = error instanceof Error && /multipart|terminated early|boundary|Malformed/i.test(error.message);
  if (!isForm) return error;
  return new HttpError(400, "invalid_form", `The form cannot be read: ${reasonOf(error)}.`, { cause: error });
}

function reasonOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}

/** The rest of the body is not read, so the connection cannot be reused. */
function tooLarge(
  found: string,
  { maxFileBytes, limitName }: Pick<UploadOptions<unknown>, "maxFileBytes" | "limitName">,
): HttpError {
  return new HttpError(
    413,
    "file_too_large",
    `The file has ${found}; the limit is ${maxFileBytes}, which ${limitName} sets.`,
    { parameter: "file", headers: { Connection: "close" } },
  );
}
