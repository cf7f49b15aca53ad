/** Calls of Pub/Sub's REST API. Only this file imports Google's authentication library. */
import { setTimeout as sleep } from "node:timers/promises";
import { GoogleAuth } from "google-auth-library";
import { request } from "undici";

const googleUrl = "https://pubsub.googleapis.com";
const scopes = ["https://www.googleapis.com/auth/pubsub"];
/** Time limit of calls that do not wait for messages, with their retries. */
const CALL_TIMEOUT_MS = 15_000;
/** Delays before the second attempt and the further ones. Calls for messages are repeated by the runner. */
const retryMs = [200, 1_000, 3_000] as const;

export interface PubSubApi {
  readonly get: <Answer>(resource: string) => Promise<Answer>;
  /** Repeats the call after errors of the server. */
  readonly post: (path: string, body: object) => Promise<void>;
  /** Waits for messages. Null if `signal` ended the wait: messages that were on their way come again after their lease. */
  readonly pull: (subscription: string, maxMessages: number, signal: AbortSignal) => Promise<PullAnswer | null>;
}

export interface PullAnswer {
  readonly receivedMessages?: readonly ReceivedMessage[];
}

export interface ReceivedMessage {
  readonly ackId: string;
  /** Absent or 0 if the subscription has no dead-letter policy. */
  readonly deliveryAttempt?: number;
  readonly message: {
    readonly messageId: string;
    /** Base64. */
    readonly data?: string;
    readonly attributes?: Readonly<Record<string, string>>;
  };
}

/** An answer with an error: https://google.aip.dev/193. */
export class PubSubError extends Error {
  override readonly name = "PubSubError";
  readonly statusCode: number;

  constructor(what: string, statusCode: number, text: string) {
    super(`${what} was answered with status ${statusCode}: ${text.slice(0, 1000)}`);
    this.statusCode = statusCode;
  }
}

export interface PubSubApiOptions {
  /** Default: Google's. */
  readonly url?: string;
  /** Whether calls carry no credentials, as emulators expect. */
  readonly isAnonymous: boolean;
}

export function createPubSubApi({ url = googleUrl, isAnonymous }: PubSubApiOptions): PubSubApi {
  let auth = new GoogleAuth({ scopes });

  /** The library refreshes a token before it expires. */
  async function send<Answer>(method: "GET" | "POST", path: string, body: object | null, signal: AbortSignal) {
    for (let isSecond = false; ; isSecond = true) {
      const usedAuth = auth;
      const authorization = isAnonymous ? null : (await usedAuth.getRequestHeaders(url)).get("authorization");
      const answer = await request(`${url}/v1/${path}`, {
        method,
        headers: { ...(body && { "content-type": "application/json" }), ...(authorization && { authorization }) },
        body: body && JSON.stringify(body),
        signal,
      });
      if (answer.statusCode === 200) return (await answer.body.json()) as Answer;
      const text = await answer.body.text();
      if (answer.statusCode !== 401 || isAnonymous || isSecond) {
        throw new PubSubError(`${method} ${path}`, answer.statusCode, text);
      }
      // A token that was revoked before its time: this forgets it.
      if (auth === usedAuth) auth = new GoogleAuth({ scopes });
    }
  }

  async function sendAgain<Answer>(method: "GET" | "POST", path: string, body: object | null): Promise<Answer> {
    const signal = AbortSignal.timeout(CALL_TIMEOUT_MS);
    for (const delayMs of retryMs) {
      try {
        return await send<Answer>(method, path, body, signal);
      } catch (error) {
        if (signal.aborted || isFinal(error)) throw error;
      }
      await sleep(delayMs);
    }
    return send<Answer>(method, path, body, signal);
  }

  return {
    get: (resource) => sendAgain("GET", resource, null),
    post: (path, body) => sendAgain("POST", path, body),
    async pull(subscription, maxMessages, signal) {
      try {
        return await send<PullAnswer>("POST", `${subscription}:pull`, { maxMessages }, signal);
      } catch (error) {
        if (signal.aborted) return null;
        throw error;
      }
    },
  };
}

function isFinal(error: unknown): boolean {
  return error instanceof PubSubError && error.statusCode < 500 && error.statusCode !== 429;
}
