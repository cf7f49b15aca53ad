/** Real web servers on loopback, with TLS and without, for tests of fetching images. */
import { once } from "node:events";
import { createServer as createPlainServer, type RequestListener } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";

import type { Certificate } from "./certificate.ts";

export interface WebServer {
  /** `127.0.0.1:port`. */
  readonly host: string;
  readonly port: number;
  /** Connections opened so far. */
  numConnections(): number;
  stop(): Promise<void>;
}

/** On a free port of 127.0.0.1; without a certificate it speaks plain HTTP. */
export async function startWebServer(listener: RequestListener, certificate: Certificate | null): Promise<WebServer> {
  const server = certificate === null ? createPlainServer(listener) : createTlsServer({ ...certificate }, listener);
  let numConnections = 0;
  server.on("connection", () => numConnections++);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    host: `127.0.0.1:${port}`,
    port,
    numConnections: () => numConnections,
    async stop() {
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}
