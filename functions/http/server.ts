/**
 * The listening socket. It opens before anything slow is loaded, so this module imports nothing slow. It answers requests
 * that Node's HTTP parser rejects, and leaves no connection behind when it closes.
 */
import { STATUS_CODES, createServer } from "node:http";
import type { IncomingMessage, RequestListener, Server, ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import type { Duplex } from "node:stream";

import { errorBody } from "./error-body.ts";

/** Time limits of a connection, in milliseconds. */
export interface ConnectionTimeouts {
  /** For the headers of a request, a few hundred bytes, from the connection or the request's first byte on. */
  readonly headers: number;
  /** For a whole request to arrive: 32 MiB over a slow line. A silent body ends earlier. */
  readonly request: number;
  /** Interval at which these two are checked. */
  readonly check: number;
  /** For a connection without a request. Longer than common load balancers' (60 s), which must close first. */
  readonly keepAlive: number;
  /** For a reader that accepts nothing of its answer: it has gone, or blocks a place. */
  readonly stall: number;
}

export const defaultTimeouts: ConnectionTimeouts = {
  headers: 20_000,
  request: 300_000,
  check: 2000,
  keepAlive: 75_000,
  stall: 120_000,
};
/**
 * Requests of one connection that wait for their answers. Clients of other servers wait for each answer; Node would read
 * on, and a client that reads nothing could have thousands of answers computed and held.
 */
export const MAX_PIPELINED_REQUESTS = 64;
/** Time for written answers to leave when the server closes. */
const CLOSE_MS = 1000;
const CLOSE_POLL_MS = 20;

export interface ServerOptions {
  readonly timeouts?: Partial<ConnectionTimeouts>;
  /** Further ones are closed, and so are those without a request in progress. Default: no limit. */
  readonly maxNumConnections?: number;
  /** Called for each connection that is closed for that reason. */
  readonly onFull?: () => void;
}

export interface OpenServer {
  readonly port: number;
  /** Closes connections without a request in progress. */
  closeIdleConnections(): void;
  /** Stops listening, waits up to a second for written answers to leave, then closes all connections. */
  close(): Promise<void>;
}

/**
 * Accepts connections at once; requests wait for `listener`. A request that is malformed or does not arrive in time is
 * answered in OpenAI's error format, and its connection is closed. Rejects when it cannot listen on the address.
 */
export async function openServer(
  { host, port }: { readonly host: string; readonly port: number },
  listener: Promise<RequestListener>,
  { timeouts, maxNumConnections = Number.POSITIVE_INFINITY, onFull }: ServerOptions = {},
): Promise<OpenServer> {
  const { headers, request, check, keepAlive, stall } = { ...defaultTimeouts, ...timeouts };
  const unanswered = new UnansweredRequests();
  const server = createServer(
    {
      headersTimeout: headers,
      requestTimeout: request,
      connectionsCheckingInterval: check,
      keepAliveTimeout: keepAlive,
      // Node would reject with an empty body.
      requireHostHeader: false,
    },
    (request, response) => {
      // Fires when no byte moved in either direction. A client that waits for a long answer is not stalled.
      const { socket } = request;
      // The parser has already read the requests behind the one for which the connection was closed.
      if (socket.destroyed) return;
      if (!isHostValid(request)) return refuse(response, unclearHost);
      if (unanswered.add(socket, response) > MAX_PIPELINED_REQUESTS) return socket.destroy();
      response.setTimeout(stall, () => {
        if (socket.writableLength > 0) socket.destroy();
        else socket.setTimeout(stall);
      });
      listener.then(
        (listen) => listen(request, response),
        () => refuse(response, { status: 503, code: "shutting_down", message: "The service could not start." }),
      );
    },
  );
  server.maxConnections = maxNumConnections;
  const opened = new Connections(server, (socket) => unanswered.of(socket).length > 0);
  server.on("drop", () => {
    opened.closeSilent();
    onFull?.();
  });
  server.on("timeout", (socket: Socket) => closeIdle(socket, unanswered));
  answerUnparsedRequests(server, unanswered);
  const listening = Promise.withResolvers<void>();
  server.once("error", listening.reject);
  server.listen({ host, port, backlog: 4096 }, listening.resolve);
  await listening.promise;
  server.off("error", listening.reject);

  return {
    port: (server.address() as AddressInfo).port,
    closeIdleConnections: () => server.closeIdleConnections(),
    async close() {
      const closed = Promise.withResolvers<void>();
      server.close(() => closed.resolve());
      const poll = setInterval(() => server.closeIdleConnections(), CLOSE_POLL_MS);
      const deadline = setTimeout(() => server.closeAllConnections(), CLOSE_MS);
      await closed.promise;
      clearInterval(poll);
      clearTimeout(deadline);
    },
  };
}

/**
 * Ends a connection that has been idle for too long, unless a request is in its buffer. Platforms pause a process between
 * requests and continue it when the next one arrives, and timers run before sockets are read.
 */
function closeIdle(socket: Socket, unanswered: UnansweredRequests): void {
  if (unanswered.of(socket).length > 0) return;
  const { bytesRead } = socket;
  setImmediate(() => {
    if (socket.bytesRead === bytesRead) socket.destroy();
  });
}

/**
 * As in RFC 9112, section 3.2: of several lines, a proxy could have read another one. HAProxy's health checks are
 * requests of HTTP/1.0 without a Host.
 */
function isHostValid({ headersDistinct: { host = [] }, httpVersion }: IncomingMessage): boolean {
  if (host.length === 0) return httpVersion === "1.0";
  return host.length === 1 && host[0] !== "";
}

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

const unclearHost: Refusal = {
  status: 400,
  code: "invalid_request",
  message: "The request must have one Host header.",
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

/** A client sends its first request at once. */
const FRESH_MS = 1000;
/** There may be thousands of connections, and as many that are rejected each second. */
const LOOK_MS = 100;

/** All connections with the times at which they were opened. Mutable. */
class Connections {
  readonly #openedAt = new Map<Duplex, number>();
  readonly #isBusy: (socket: Duplex) => boolean;
  #lookedAt = Number.NEGATIVE_INFINITY;

  constructor(server: Server, isBusy: (socket: Duplex) => boolean) {
    this.#isBusy = isBusy;
    server.on("connection", (socket: Duplex) => {
      this.#openedAt.set(socket, performance.now());
      socket.once("close", () => this.#openedAt.delete(socket));
    });
  }

  /** Closes those without a request in progress, except for new ones. */
  closeSilent(): void {
    const now = performance.now();
    if (now - this.#lookedAt < LOOK_MS) return;
    this.#lookedAt = now;
    for (const [socket, openedAt] of this.#openedAt) {
      if (now - openedAt >= FRESH_MS && !this.#isBusy(socket)) socket.destroy();
    }
  }
}

/** Incomplete responses by connection. Mutable. */
class UnansweredRequests {
  readonly #responses = new WeakMap<Duplex, Set<ServerResponse>>();

  /** Returns the number of the connection's incomplete responses, with this one. */
  add(socket: Duplex, response: ServerResponse): number {
    const responses = this.#responses.get(socket) ?? new Set();
    this.#responses.set(socket, responses.add(response));
    response.once("close", () => responses.delete(response));
    return responses.size;
  }

  of(socket: Duplex): readonly ServerResponse[] {
    return [...(this.#responses.get(socket) ?? [])];
  }
}

/** Makes `server` answer in OpenAI's error format wherever it can still write an answer. */
function answerUnparsedRequests(server: Server, unanswered: UnansweredRequests): void {
  server.on("clientError", (error: NodeJS.ErrnoException, socket) => {
    const isFree = unanswered.of(socket).every((response) => mayBeReplaced(response));
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
function refuse(response: ServerResponse, { status, code, message }: Refusal): void {
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
