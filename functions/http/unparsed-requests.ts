/**
 * Answers requests that Node's HTTP parser rejects: malformed, too long, too slow. Imports nothing that is slow to
 * load.
 */
import { STATUS_CODES } from "node:http";
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";

import { errorBody } from "./error-body.ts";

interface Refusal {
  readonly status: number;
  readonly code: string;
  readonly message: string;
}

const malformed: Refusal = {
  status: 400,
  code: "invalid_request",
  message: "The request is not well-formed HTTP.",
};

/** By the code of the parser's error. Every other code means that the request is malformed. */
const refusals: Readonly<Record<string, Refusal>> = {
  HPE_HEADER_OVERFLOW: {
    status: 431,
    code: "headers_too_large",
    message: "The request line and the headers together are too long.",
  },
  HPE_CHUNK_EXTENSIONS_OVERFLOW: {
    status: 413,
    code: "body_too_large",
    message: "The extensions of a body chunk are too long.",
  },
  ERR_HTTP_REQUEST_TIMEOUT: {
    status: 408,
    code: "request_timeout",
    message: "The request did not arrive in time.",
  },
};

/** Makes `server` answer in OpenAI's error format wherever it can still write an answer. */
export function answerUnparsedRequests(server: Server): void {
  /** Incomplete responses by connection. */
  const unanswered = new WeakMap<Duplex, Set<ServerResponse>>();
  server.on("request", ({ socket }: IncomingMessage, response: ServerResponse) => {
    const responses = unanswered.get(socket) ?? new Set();
    unanswered.set(socket, responses.add(response));
    response.once("close", () => responses.delete(response));
  });
  server.on("clientError", (error: NodeJS.ErrnoException, socket) => {
    const isFree = [...(unanswered.get(socket) ?? [])].every((response) => mayBeReplaced(response));
    if (!socket.writable || !isFree) return socket.destroy();
    end(socket, refusals[error.code ?? ""] ?? malformed);
  });
  server.on("connect", (_request, socket) => {
    end(socket, { status: 405, code: "method_not_allowed", message: "CONNECT is not supported." });
  });
  server.on("checkExpectation", ({ headers }: IncomingMessage, response: ServerResponse) => {
    const expected = JSON.stringify((headers.expect ?? "").slice(0, 100));
    const message = `Expect: ${expected} is not supported; only 100-continue is.`;
    refuse(response, { status: 417, code: "expectation_failed", message });
  });
}

/** Answers a request that the application does not see. */
export function refuse(response: ServerResponse, { status, code, message }: Refusal): void {
  const body = JSON.stringify(errorBody(status, code, message));
  const headers = {
    "Content-Type": "application/json",
    "Content-Length": Buffer.byteLength(body),
    Connection: "close",
  };
  response.writeHead(status, headers).end(body);
}

/** Whether the rejected request is the one that this response belongs to, and nothing of the response is written. */
function mayBeReplaced({ headersSent, req }: ServerResponse): boolean {
  return !headersSent && !req.complete;
}

function end(socket: Duplex, { status, code, message }: Refusal): void {
  const body = JSON.stringify(errorBody(status, code, message));
  const head = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    "Content-Type: application/json",
    `Content-Length: ${Buffer.byteLength(body)}`,
    "Connection: close",
  ].join("\r\n");
  socket.on("error", () => {});
  socket.end(`${head}\r\n\r\n${body}`, () => socket.destroy());
}
