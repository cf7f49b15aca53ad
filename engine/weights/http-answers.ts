/** What the downloads over plain HTTP share: bounded bodies, waits that a server asks for, broken connections. */
import { EngineError } from "../contract/errors.ts";
import { TransientDownloadError } from "./parallel-ranges.ts";

/** A page of a listing has up to a thousand files in less than 1 MB. */
const MAX_ANSWER_BYTES = 16 * 1024 * 1024;
export const ANSWER_TIMEOUT_MS = 30_000;

/** Throws TransientDownloadError, or EngineError `invalid_configuration` for an answer that is too long. */
export async function readText({ body }: Response, signal: AbortSignal, origin: string): Promise<string> {
  const chunks: Uint8Array[] = [];
  let numBytes = 0;
  try {
    for await (const chunk of body ?? []) {
      numBytes += chunk.byteLength;
      if (numBytes > MAX_ANSWER_BYTES) {
        throw new EngineError("invalid_configuration", `${origin} answers with more than ${MAX_ANSWER_BYTES} bytes.`);
      }
      chunks.push(chunk);
    }
  } catch (cause) {
    throw explainFailure(cause, `${origin} cannot be read`, signal);
  }
  return Buffer.concat(chunks).toString("utf8");
}

/** Null if the server names no number of seconds. */
export function retryAfterMsOf(headers: Headers): number | null {
  const seconds = headers.get("retry-after") ?? /\bt=(\d+)/.exec(headers.get("ratelimit") ?? "")?.[1] ?? "";
  return /^\d+$/.test(seconds) ? Number(seconds) * 1000 : null;
}

/** The error of a connection that could not be opened or broke. */
export function explainFailure(cause: unknown, failure: string, signal: AbortSignal): Error {
  if (cause instanceof EngineError || cause instanceof TransientDownloadError) return cause;
  if (signal.aborted && signal.reason instanceof Error && signal.reason.name === "TimeoutError") {
    return new TransientDownloadError(`${failure}: no answer in time.`, { cause });
  }
  if (signal.aborted) return new EngineError("aborted", `${failure}: aborted.`, { cause });
  return new TransientDownloadError(`${failure} (${reasonOf(cause)}).`, { cause });
}

/** `fetch` hides the system's error in the cause. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if ("code" in error && typeof error.code === "string") return error.code;
  return error.cause === undefined ? error.message : reasonOf(error.cause);
}
