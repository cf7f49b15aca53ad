/** The listening socket: opened before anything slow is loaded, closed without leaving a connection behind. */
import { createServer } from "node:http";
import type { RequestListener } from "node:http";
import type { AddressInfo } from "node:net";

/** Longer than the idle timeouts of common load balancers (60 s), which must be the ones to close. */
const KEEP_ALIVE_MS = 75_000;
const HEADERS_TIMEOUT_MS = 80_000;
/** For a whole request to arrive: 32 MiB over a slow line. */
const REQUEST_TIMEOUT_MS = 300_000;
/** A reader that takes nothing of what was written for it in this time has gone or holds its place for nothing. */
const STALL_TIMEOUT_MS = 120_000;
/** For answers already written to leave. */
const CLOSE_MS = 1000;
const CLOSE_POLL_MS = 20;

export interface OpenServer {
  readonly port: number;
  /** Stops listening, lets what is written leave for up to a second, then closes all connections. */
  close(): Promise<void>;
}

/**
 * Connections are accepted at once; requests wait for `listener`. A connection whose reader takes nothing for
 * `stallTimeoutMs` is closed. Rejects where the address cannot be listened on.
 */
export async function openServer(
  { host, port }: { readonly host: string; readonly port: number },
  listener: Promise<RequestListener>,
  stallTimeoutMs: number = STALL_TIMEOUT_MS,
): Promise<OpenServer> {
  const server = createServer(
    { keepAliveTimeout: KEEP_ALIVE_MS, headersTimeout: HEADERS_TIMEOUT_MS, requestTimeout: REQUEST_TIMEOUT_MS },
    (request, response) => {
      // Fires when nothing moved either way, which alone may mean a client that waits for a long answer.
      const { socket } = request;
      response.setTimeout(stallTimeoutMs, () => {
        if (socket.writableLength > 0) socket.destroy();
        else socket.setTimeout(stallTimeoutMs);
      });
      listener.then(
        (listen) => listen(request, response),
        () => response.writeHead(503).end(),
      );
    },
  );
  const listening = Promise.withResolvers<void>();
  server.once("error", listening.reject);
  server.listen({ host, port, backlog: 4096 }, listening.resolve);
  await listening.promise;
  server.off("error", listening.reject);

  return {
    port: (server.address() as AddressInfo).port,
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
