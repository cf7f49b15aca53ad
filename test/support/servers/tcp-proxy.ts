/** A TCP proxy on its own port: when it closes, its clients lose their server, which others still reach. */
import { connect, createServer } from "node:net";
import type { AddressInfo, Socket } from "node:net";

export interface TcpProxy extends AsyncDisposable {
  readonly port: number;
  /** Connections that clients have opened so far. */
  readonly numConnections: number;
  /** Leads new connections to another server; the others stay. */
  leadTo(port: number): void;
  /** Forwards nothing more on open connections, which stay open; new ones work. Firewalls that forget a connection do that. */
  strand(): void;
  /** Ends all connections and accepts no more. Idempotent. */
  cut(): void;
}

export async function startTcpProxy(targetPort: number): Promise<TcpProxy> {
  const sockets = new Set<Socket>();
  let numConnections = 0;
  let currentPort = targetPort;
  const server = createServer((client) => {
    numConnections += 1;
    const target = connect(currentPort, "127.0.0.1");
    for (const [socket, other] of [
      [client, target],
      [target, client],
    ] as const) {
      sockets.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => {
        sockets.delete(socket);
        other.destroy();
      });
      socket.pipe(other);
    }
  });
  const listening = Promise.withResolvers<void>();
  server.listen(0, "127.0.0.1", listening.resolve);
  await listening.promise;
  const closed = Promise.withResolvers<void>();
  server.once("close", closed.resolve);
  const cut = (): void => {
    server.close();
    for (const socket of sockets) socket.destroy();
  };
  return {
    port: (server.address() as AddressInfo).port,
    get numConnections() {
      return numConnections;
    },
    leadTo(port) {
      currentPort = port;
    },
    strand() {
      for (const socket of sockets) socket.unpipe().pause();
    },
    cut,
    async [Symbol.asyncDispose]() {
      cut();
      await closed.promise;
    },
  };
}
