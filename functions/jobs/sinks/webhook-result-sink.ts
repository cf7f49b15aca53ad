/** Results as signed HTTP requests: Standard Webhooks, https://www.standardwebhooks.com. */
import { createHash, createHmac } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { request } from "undici";
import type { Dispatcher } from "undici";

import type { ResultSink } from "../result-sink.ts";
import { describeTarget } from "../targets.ts";

/** The type of the events, which Standard Webhooks asks for. */
export const resultEventType = "fovea.job.finished";

/** Delays before the second attempt and the further ones. */
const defaultRetryMs = [1_000, 5_000, 30_000] as const;
/** Receivers should answer within 15 to 30 seconds, says the specification. */
const ATTEMPT_TIMEOUT_MS = 20_000;

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

/**
 * Posts `{"type", "timestamp", "data"}` with the result as data. A status of 2xx ends the delivery; redirects are not
 * followed, and every other status and every failure is tried again, except 410, which says that the receiver is gone.
 * `webhook-id` is the id of the job, so a receiver can ignore a result that it already has.
 */
export function createWebhookResultSink(options: WebhookResultSinkOptions): ResultSink {
  const { url, secret, dispatcher, retryMs = defaultRetryMs, attemptTimeoutMs = ATTEMPT_TIMEOUT_MS } = options;
  const name = describeTarget({ kind: "webhook", url });

  /** Returns what is wrong, or null. */
  async function post(jobId: string, payload: string, signal: AbortSignal): Promise<string | null> {
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
      return `it answered with status ${statusCode}`;
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  }

  return {
    name,
    async put({ jobId, text }, signal) {
      const payload = `{"type":"${resultEventType}","timestamp":"${new Date().toISOString()}","data":${text}}`;
      for (let attempt = 0; ; attempt++) {
        const problem = await post(jobId, payload, signal);
        signal.throwIfAborted();
        if (problem === null) return;
        if (attempt === retryMs.length || problem.endsWith(" 410")) {
          throw new Error(`The webhook ${name} did not accept the result of ${jobId}: ${problem}.`);
        }
        await sleep(retryMs[attempt], null, { signal });
      }
    },
    async close() {},
  };
}

/** Header values are visible ASCII, and receivers ignore results whose id they know, so that ids are never cut. */
function headerSafe(jobId: string): string {
  return /^[\x21-\x7e]{1,256}$/.test(jobId) ? jobId : createHash("sha256").update(jobId).digest("hex");
}
