/** The HTTP calls of object stores that need no client of their own: pages of a list, and ranges of an object. */
import { EngineError } from "../../contract/errors.ts";
import { describeError } from "../../excerpt.ts";
import { ANSWER_TIMEOUT_MS, explainFailure, readText, retryAfterMsOf } from "../http-answers.ts";
import { TransientDownloadError, withRetries } from "../parallel-ranges.ts";
import type { RemoteObject } from "./remote-objects.ts";

/** A store that asks for a longer pause is not waited for. */
const MAX_RETRY_AFTER_MS = 60_000;

export interface ObjectService {
  /** Adds the headers, or the fields of the address, that say who asks. Throws EngineError `invalid_configuration`. */
  readonly authorize: (url: URL, headers: Headers, signal: AbortSignal) => Promise<void>;
  /** The service's own name of the error, or an empty text. */
  readonly errorCodeOf: (headers: Headers, body: string) => string;
  /** Completes the error of a call that is not allowed. */
  readonly adviceForRejected: () => string;
}

/**
 * Returns the body of a GET. Tries again while the server is busy or not reachable.
 *
 * @param what Begins the error: `gs://bucket/prefix cannot be listed`.
 * @throws EngineError `invalid_configuration`, `aborted`.
 */
export async function getPage(
  service: ObjectService,
  what: string,
  url: URL,
  signal: AbortSignal | undefined,
): Promise<string> {
  const callerSignal = signal ?? new AbortController().signal;
  try {
    return await withRetries(callerSignal, async () => {
      const attemptSignal = AbortSignal.any([callerSignal, AbortSignal.timeout(ANSWER_TIMEOUT_MS)]);
      const answer = await send(service, { what, url, absent: "invalid_configuration", signal: attemptSignal });
      return readText(answer, attemptSignal, url.origin);
    });
  } catch (error) {
    if (error instanceof EngineError) throw error;
    const aborted = callerSignal.aborted;
    const message = error instanceof TransientDownloadError ? error.message : `${what}: ${String(error)}.`;
    throw new EngineError(aborted ? "aborted" : "invalid_configuration", message, { cause: error });
  }
}

export interface ObjectAddress {
  readonly name: string;
  readonly url: URL;
  /** Headers that bind the answer to the listed version. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** See `RemoteObjects.createReader`. */
export async function* readObjectRange(
  service: ObjectService,
  { name, url, headers = {} }: ObjectAddress,
  { byteLength, contentEncoding }: RemoteObject,
  start: number,
  end: number,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const failure = `${name} cannot be read`;
  if (contentEncoding !== undefined) {
    // Ranges of its bytes are not ranges of the file.
    const message = `${name} is stored with the content encoding ${describeError(contentEncoding)}; upload it uncompressed.`;
    throw new EngineError("invalid_checkpoint", message);
  }
  const rangeHeaders = { ...headers, range: `bytes=${start}-${end - 1}` };
  const answer = await send(service, {
    what: failure,
    url,
    headers: rangeHeaders,
    absent: "invalid_checkpoint",
    signal,
  });
  try {
    if (answer.body === null) throw new TransientDownloadError(`${name} was sent without a body.`);
    const range = answer.headers.get("content-range");
    const isWhole = start === 0 && end === byteLength;
    if (answer.status === 206 ? range?.startsWith(`bytes ${start}-${end - 1}/`) !== true : !isWhole) {
      throw new EngineError("invalid_configuration", `${name}: the server does not support ranges of an object.`);
    }
    const size = /\/(\d+)$/.exec(range ?? "")?.[1];
    if (size !== undefined && Number(size) !== byteLength) {
      throw new EngineError(
        "invalid_checkpoint",
        `${name} is listed with ${byteLength} bytes and served with ${size}.`,
      );
    }
    yield* answer.body;
  } catch (cause) {
    throw explainFailure(cause, failure, signal);
  } finally {
    await answer.body?.cancel().catch(() => undefined);
  }
}

interface Call {
  /** Begins the error. */
  readonly what: string;
  readonly url: URL;
  readonly headers?: Readonly<Record<string, string>>;
  /** Code of the error if the URL names nothing: a list needs a bucket, a range an object. */
  readonly absent: "invalid_configuration" | "invalid_checkpoint";
  readonly signal: AbortSignal;
}

async function send(service: ObjectService, call: Call): Promise<Response> {
  const { what, signal } = call;
  const url = new URL(call.url);
  // A compressed answer would have other ranges.
  const headers = new Headers({ ...call.headers, "accept-encoding": "identity", "user-agent": "fovea" });
  let answer: Response;
  try {
    await service.authorize(url, headers, signal);
    answer = await fetch(url, { headers, signal, redirect: "manual" });
  } catch (cause) {
    throw explainFailure(cause, what, signal);
  }
  if (answer.ok) return answer;
  const body = await readText(answer, signal, url.origin).catch(() => "");
  throw explainStatus(service, call, answer, service.errorCodeOf(answer.headers, body));
}

function explainStatus(
  service: ObjectService,
  { what, absent }: Call,
  { status, headers }: Response,
  errorCode: string,
): Error {
  const reason = [...(errorCode === "" ? [] : [describeError(errorCode)]), `status ${status}`].join(", ");
  switch (status) {
    case 401:
    case 403:
      return new EngineError("invalid_configuration", `${what}: rejected (${reason}). ${service.adviceForRejected()}`);
    case 404:
      return new EngineError(absent, `${what}: it does not exist (${reason}).`);
    case 409:
    case 412:
      return new EngineError("invalid_checkpoint", `${what}: it changed during the download of the checkpoint.`);
    case 416:
      return new EngineError("invalid_checkpoint", `${what}: it has fewer bytes than the store lists.`);
    default:
      break;
  }
  if (status === 408 || status === 429 || status >= 500) {
    const asked = retryAfterMsOf(headers);
    const retryAfterMs = asked === null ? null : Math.min(asked, MAX_RETRY_AFTER_MS);
    return new TransientDownloadError(`${what} (${reason}).`, { retryAfterMs });
  }
  return new EngineError("invalid_configuration", `${what}: rejected (${reason}).`);
}
