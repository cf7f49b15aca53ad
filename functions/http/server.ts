/** The listening socket. It opens before anything slow is loaded, and leaves no connection behind when it closes. */
import { createServer } from "node:http";
import type { RequestListener } from "node:http";
import type { AddressInfo } from "node:net";

import { answerUnparsedRequests, refuse } from "./unparsed-requests.ts";

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
/** Time for written answers to leave when the server closes. */
const CLOSE_MS = 1000;
const CLOSE_POLL_MS = 20;

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
  timeouts: Partial<ConnectionTimeouts> = {},
): Promise<OpenServer> {
  const { headers, request, check, keepAlive, stall } = { ...defaultTimeouts, ...timeouts };
  const server = createServer(
    {
      headersTimeout: headers,
      requestTimeout: request,
      connectionsCheckingInterval: check,
      keepAliveTimeout: keepAlive,
      // Node would reject with an empty body; the listener rejects such a request too.
      requireHostHeader: false,
    },
    (request, response) => {
      // Fires when no byte moved in either direction. A client that waits for a long answer is not stalled.
      const { socket } = request;
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
  answerUnparsedRequests(server);
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
