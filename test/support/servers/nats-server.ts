/** Starts a real NATS server with JetStream on a free port. */
import { ensureNatsServer } from "../programs/nats.ts";
import { createTemporaryFolder } from "../temporary-folder.ts";
import { freePort } from "./free-port.ts";
import { startServerProcess } from "./server-process.ts";

export interface NatsServer extends AsyncDisposable {
  /** `host:port`. */
  readonly address: string;
  /** A crash and another start with the same port and streams. */
  restart(): Promise<void>;
}

export async function startNatsServer(): Promise<NatsServer> {
  const program = await ensureNatsServer();
  const folder = await createTemporaryFolder();
  const port = await freePort();
  const args = ["--addr", "127.0.0.1", "--port", String(port), "--jetstream", "--store_dir", folder.path];
  const start = () => startServerProcess({ name: "nats-server", program, args, readyText: "Server is ready" });
  let server = await start();
  return {
    address: `127.0.0.1:${port}`,
    async restart() {
      await server.kill();
      server = await start();
    },
    async [Symbol.asyncDispose]() {
      await server.kill();
      await folder[Symbol.asyncDispose]();
    },
  };
}
