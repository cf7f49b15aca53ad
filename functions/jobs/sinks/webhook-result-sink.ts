/** Results as signed HTTP requests: Standard Webhooks, https://www.standardwebhooks.com. */
import { createHash, createHmac } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { request } from "undici";
import type { Dispatcher } from "undici";

import { resultEventType } from "../job-result.ts";
import { ResultRefusedError } from "../result-sink.ts";
import type { ResultSink } from "../result-sink.ts";
import { describeTarget } from "../targets.ts";

/** Delays before the second attempt and the further ones. */
const defaultRetryMs = [1_000, 5_000, 30_000] as const;
/** Receivers should answer within 15 to 30 seconds, says the specification. */
const ATTEMPT_TIMEOUT_MS = 20_000;
/** The receiver is gone, says the specification. */
const GONE = 410;
/** Statuses of 400 to 499 that do not depend on the result: of a wrong secret, a deployment under way, a busy receiver. */
const passingStatuses: ReadonlySet<number> = new Set([401, 403, 404, 408, 425, 429]);

export interface WebhookResultSinkOptions {
  readonly url: string;
  /** Decoded. Null sends no signature. */
  readonly secret: Buffer | null;
  readonly dispatcher?: Dispatcher;
  readonly retryMs?: readonly number[];
  readonly attemptTimeoutMs?: number;
}

/** `webhook-signature` of a payload: `v1,` and Base64 of HMAC-SHA256. */
function signWebhook(secret: Buffer, id: string, timestamp: number, payload: string): string {
  return `v1,${createHmac("sha256", secret).update(`${id}.${timestamp}.${payload}`).digest("base64")}`;
}

interface Problem {
  readonly message: string;
  /** Null without an answer. */
  readonly status: number | null;
}

/**
 * Posts `{"type", "timestamp", "data"}` with the result as data. A status of 2xx ends the delivery; redirects are not
 * followed, and every other status and every failure is tried again, except 410, which says that the receiver is gone.
 * `webhook-id` is the id of the job, so a receiver can ignore a result that it already has. The body of an answer is not
 * read beyond some kilobytes.
 */
export function createWebhookResultSink(options: WebhookResultSinkOptions): ResultSink {
  const { url, secret, dispatcher, retryMs = defaultRetryMs, attemptTimeoutMs = ATTEMPT_TIMEOUT_MS } = options;
  const name = describeTarget({ kind: "webhook", url });

  /** Returns what is wrong, or null. */
  async function post(jobId: string, payload: string, signal: AbortSignal): Promise<Problem | null> {
    const timestamp = Math.floor(Date.now() / 1000);
    const id = headerSafe(jobId);
    try {
      const { statusCode, body } = await request(url, {
        method: "POST",
        headers: {
          "content-type": "application/json",
          "user-agent": "fovea",
          "webhook-id": id,
          "webhook-timestamp": String(timestamp),
          ...(secret && { "webhook-signature": signWebhook(secret, id, timestamp, payload) }),
        },
        body: payload,
        signal: AbortSignal.any([signal, AbortSignal.timeout(attemptTimeoutMs)]),
        ...(dispatcher && { dispatcher }),
      });
      await body.dump();
      if (statusCode >= 200 && statusCode < 300) return null;
      return { message: `it answered with status ${statusCode}`, status: statusCode };
    } catch (error) {
      return { message: error instanceof Error ? error.message : String(error), status: null };
    }
  }

  return {
    name,
    async put(result, _, signal) {
      const { jobId, text } = result;
      const payload = `{"type":"${resultEventType}","timestamp":"${new Date().toISOString()}","data":${text}}`;
      for (let attempt = 0; ; attempt++) {
        const problem = await post(jobId, payload, signal);
        signal.throwIfAborted();
        if (problem === null) return result;
        if (attempt === retryMs.length || problem.status === GONE) {
          const message = `The webhook ${name} did not accept the result of ${jobId}: ${problem.message}.`;
          throw isRefusal(problem) ? new ResultRefusedError(message) : new Error(message);
        }
        await sleep(retryMs[attempt], null, { signal });
      }
    },
    async close() {},
  };
}

function isRefusal({ status }: Problem): boolean {
  return status !== null && status >= 400 && status < 500 && !passingStatuses.has(status);
}

/**
 * Header values are visible ASCII. Receivers ignore results whose id they know, so ids are never cut, and one that could
 * be the SHA-256 of another id is replaced as well.
 */
function headerSafe(jobId: string): string {
  const isSafe = /^[\x21-\x7e]{1,256}$/.test(jobId) && !/^[0-9a-f]{64}$/.test(jobId);
  return isSafe ? jobId : createHash("sha256").update(jobId).digest("hex");
}
