/** Starts a real NATS server with JetStream on a free port. */
import { ensureNatsServer } from "../programs/nats.ts";
import { createTemporaryFolder } from "../temporary-folder.ts";
import { freePort } from "./free-port.ts";
import { startServerProcess } from "./server-process.ts";

export interface NatsServer extends AsyncDisposable {
  /** `host:port`. */
  readonly address: string;
  /** The server stops answering; its connections stay open. */
  pause(): void;
  resume(): void;
  /** A crash and another start with the same port and streams. `options` replace those of the last start. */
  restart(options?: readonly string[]): Promise<void>;
}

/** @param options Of the command line. */
export async function startNatsServer(options: readonly string[] = []): Promise<NatsServer> {
  const program = await ensureNatsServer();
  const folder = await createTemporaryFolder();
  const port = await freePort();
  const args = ["--addr", "127.0.0.1", "--port", String(port), "--jetstream", "--store_dir", folder.path];
  let current = options;
  const start = () =>
    startServerProcess({ name: "nats-server", program, args: [...args, ...current], readyText: "Server is ready" });
  let server = await start();
  return {
    address: `127.0.0.1:${port}`,
    pause: () => void server.child.kill("SIGSTOP"),
    resume: () => void server.child.kill("SIGCONT"),
    async restart(others = current) {
      await server.kill();
      current = others;
      server = await start();
    },
    async [Symbol.asyncDispose]() {
      await server.kill();
      await folder[Symbol.asyncDispose]();
    },
  };
}
