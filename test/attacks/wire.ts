/** Sends attacks to the service, with an HTTP client that follows the rules or as bytes on a socket. */
import { connect } from "node:net";
import type { Socket } from "node:net";
import { Readable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { Pool } from "undici";

import { AnswerReader } from "./answer-reader.ts";
import type { Answer } from "./answer-reader.ts";

/** Longer than any machine needs for an answer. Only decides when to stop waiting. */
const ANSWER_DEADLINE_MS = 30_000;
/** How long to listen on a socket without a due answer. Decides nothing. */
const PATIENCE_MS = 250;
const MAX_CONNECTIONS = 64;

export interface WireRequest {
  readonly method: string;
  readonly target: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** A body in pieces is sent in chunks. */
  readonly body?: string | Uint8Array | AsyncIterable<Uint8Array>;
  /** Chunks of the answer after which the client closes the connection; default: it reads to the end. */
  readonly leaveAfterChunks?: number;
}

/** The actions on a socket, in order. */
export type SocketStep =
  | { readonly kind: "write"; readonly bytes: Uint8Array }
  | { readonly kind: "pause"; readonly ms: number }
  /** Announces that nothing more will be written; answers are still read. */
  | { readonly kind: "half-close" }
  /** Closes with RST at once. */
  | { readonly kind: "reset" };

export interface SocketScript {
  /** Methods and targets of the requests on it, in order, as far as they are known. */
  readonly requests: readonly { readonly method: string; readonly target: string }[];
  readonly steps: readonly SocketStep[];
  /** Minimum number of answers; with 0 the server may close the connection instead, or wait for more. */
  readonly numDue: number;
  /** A client that reads nothing. */
  readonly isDeaf?: boolean;
}

/** Mutable: holds connections until it is closed. */
export class Wire implements AsyncDisposable {
  readonly baseUrl: URL;
  readonly #pool: Pool;
  readonly #headers: Readonly<Record<string, string>>;
  #numBodyBytes = 0;

  constructor(baseUrl: string, headers: Readonly<Record<string, string>> = {}) {
    this.baseUrl = new URL(baseUrl);
    this.#headers = headers;
    this.#pool = new Pool(baseUrl, { connections: MAX_CONNECTIONS, headersTimeout: 0, bodyTimeout: 0 });
  }

  /** Total of all requests so far. */
  get numBodyBytes(): number {
    return this.#numBodyBytes;
  }

  /** The same service with the headers of another client; closes by itself. */
  as(headers: Readonly<Record<string, string>>): Wire {
    return new Wire(this.baseUrl.href, headers);
  }

  /** Rejects if there is no answer. */
  async send({ method, target, headers = {}, body, leaveAfterChunks = Infinity }: WireRequest): Promise<Answer> {
    if (isWhole(body)) this.#numBodyBytes += body.length;
    const signal = AbortSignal.timeout(ANSWER_DEADLINE_MS);
    try {
      const response = await this.#pool.request({
        method,
        path: target,
        headers: { ...this.#headers, ...headers },
        ...(body !== undefined && { body: isWhole(body) ? body : Readable.from(body) }),
        signal,
      });
      const { chunks, isComplete } = await readChunks(response.body, leaveAfterChunks);
      return {
        method,
        target,
        status: response.statusCode,
        headers: flatten(response.headers),
        text: Buffer.concat(chunks).toString(),
        isComplete,
      };
    } catch (cause) {
      throw noAnswer(`${method} ${target}`, cause);
    }
  }

  async sendJson(target: string, body: unknown, headers: Readonly<Record<string, string>> = {}): Promise<Answer> {
    return this.send({
      method: "POST",
      target,
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify(body),
    });
  }

  get(target: string): Promise<Answer> {
    return this.send({ method: "GET", target });
  }

  /** A connection with these bytes written, and nothing more until it is closed. */
  async hold(bytes: Uint8Array): Promise<AsyncDisposable> {
    const socket = connect({ host: this.baseUrl.hostname, port: Number(this.baseUrl.port) });
    // The server may end it at any time.
    socket.on("error", () => {});
    socket.resume();
    await act(socket, { kind: "write", bytes });
    return {
      async [Symbol.asyncDispose]() {
        socket.resetAndDestroy();
      },
    };
  }

  /** Runs the steps on a new connection and reads answers until all have arrived or none is due. */
  async play({ requests, steps, numDue, isDeaf = false }: SocketScript): Promise<readonly Answer[]> {
    const socket = connect({ host: this.baseUrl.hostname, port: Number(this.baseUrl.port), allowHalfOpen: true });
    const reader = new AnswerReader(requests);
    const ended = Promise.withResolvers<"answered" | "closed" | "reset" | "late">();
    const read = (chunk: Buffer): void => {
      reader.add(chunk);
      if (reader.answers.length >= requests.length) ended.resolve("answered");
    };
    if (isDeaf) socket.pause();
    else socket.on("data", read);
    socket.on("error", () => ended.resolve("reset"));
    socket.on("end", () => ended.resolve("closed"));
    socket.on("close", () => ended.resolve("closed"));
    let timer: NodeJS.Timeout | undefined;
    try {
      for (const step of steps) if (!(await act(socket, step))) return [];
      timer = setTimeout(() => ended.resolve("late"), numDue > 0 ? ANSWER_DEADLINE_MS : PATIENCE_MS);
      const outcome = await ended.promise;
      if (outcome === "closed") reader.end();
      if (reader.answers.length < numDue) {
        throw noAnswer(`request ${reader.answers.length + 1} of ${numDue} on a socket`, outcome);
      }
      return reader.answers;
    } finally {
      clearTimeout(timer);
      // A reset of a socket that is shutting down never completes in libuv: the process could not end.
      if (socket.writableEnded) socket.destroy();
      else socket.resetAndDestroy();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#pool.destroy();
  }
}

/** Returns whether the connection continues. */
async function act(socket: Socket, step: SocketStep): Promise<boolean> {
  switch (step.kind) {
    case "write":
      // Waits for the kernel, so that a reset cannot overtake what was written before.
      await new Promise((resolve) => socket.write(step.bytes, resolve));
      return true;
    case "pause":
      await delay(step.ms);
      return true;
    case "half-close":
      socket.end();
      return true;
    case "reset":
      socket.resetAndDestroy();
      return false;
  }
}

/** Closes the connection after this many chunks. */
async function readChunks(
  body: Readable,
  maxChunks: number,
): Promise<{ readonly chunks: Buffer[]; readonly isComplete: boolean }> {
  const chunks: Buffer[] = [];
  if (maxChunks === 0) {
    // Closing it before it has started is an error for the reader.
    body.on("error", () => {}).destroy();
    return { chunks, isComplete: false };
  }
  for await (const chunk of body as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    if (chunks.length >= maxChunks) return { chunks, isComplete: false };
  }
  return { chunks, isComplete: true };
}

function flatten(headers: Readonly<Record<string, string | string[] | undefined>>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, String([value].flat().at(-1))]));
}

function noAnswer(what: string, cause: unknown): Error {
  const reason = cause instanceof Error ? `${cause.name}: ${cause.message}` : String(cause);
  return new Error(`No answer to ${what.slice(0, 120)} (${reason}).`, { cause });
}

function isWhole(body: WireRequest["body"]): body is string | Uint8Array {
  return typeof body === "string" || body instanceof Uint8Array;
}
