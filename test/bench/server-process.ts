/** The service as a separate process, started like by a platform. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect } from "node:net";
import { performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import { freePort } from "../support/servers/free-port.ts";

const entry = fileURLToPath(new URL("../../functions/cli/main.js", import.meta.url));

export interface ServerProcess extends AsyncDisposable {
  readonly url: string;
  readonly pid: number;
  /** Milliseconds from the start of the process until its port accepted a connection. */
  readonly portOpenMs: number;
  /** `performance.now()` when the process was started. */
  readonly startedAt: number;
}

/** @param nodeArguments Options of Node itself. */
export async function startServerProcess(
  environment: Readonly<Record<string, string>>,
  nodeArguments: readonly string[] = [],
): Promise<ServerProcess> {
  const port = await freePort();
  const startedAt = performance.now();
  const child = spawn(process.execPath, [...nodeArguments, entry, "serve"], {
    env: { ...process.env, LOG_LEVEL: "warn", ...environment, HOST: "127.0.0.1", PORT: String(port) },
    stdio: ["ignore", "ignore", "inherit"],
  });
  const exited = once(child, "exit");
  while (!(await accepts(port))) {
    if (child.exitCode !== null) throw new Error(`The server ended with code ${child.exitCode}.`);
    await delay(2);
  }
  return {
    url: `http://127.0.0.1:${port}`,
    pid: child.pid!,
    portOpenMs: performance.now() - startedAt,
    startedAt,
    async [Symbol.asyncDispose]() {
      child.kill("SIGTERM");
      await exited;
    },
  };
}

export async function untilReady(server: ServerProcess): Promise<void> {
  for (;;) {
    const response = await fetch(`${server.url}/health`);
    // An unread body would keep its connection from the next request, until the server accepts no more of them.
    await response.body?.cancel();
    if (response.ok) return;
    await delay(5);
  }
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.once("connect", () => {
      // While the server does not listen, a connection may get its own port as the source and so reach itself.
      const reachedItself = socket.localPort === port;
      socket.destroy();
      resolve(!reachedItself);
    });
    socket.once("error", () => resolve(false));
  });
}
