/** Servers of the tests as child processes that end with the process that started them, however that ends. */
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";

import { endWithRun } from "./end-with-run.ts";

export interface ServerProgram {
  /** For errors. */
  readonly name: string;
  readonly program: string;
  readonly args: readonly string[];
  readonly environment?: NodeJS.ProcessEnv;
  /** Printed when the server accepts connections. */
  readonly readyText: string | RegExp;
}

export interface ServerProcess {
  readonly child: ChildProcess;
  /** Printed until the server was ready. */
  readonly output: string;
  /** Ends the process at once, like a crash. Idempotent. */
  kill(): Promise<void>;
}

/** Far above what a start takes, also on a busy machine: RabbitMQ is the slowest. */
const startTimeoutMs = 240_000;

export async function startServerProcess(server: ServerProgram): Promise<ServerProcess> {
  const { program, args, environment = process.env } = server;
  // A group of its own, because a server may start others. Ctrl-C does not reach it.
  const child = spawn(program, args, { env: environment, stdio: ["ignore", "pipe", "pipe"], detached: true });
  endWithRun(child, { hasGroup: true });
  const killGroup = (): void => {
    try {
      if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
    } catch {
      // It has ended.
    }
  };
  const output = await untilReady(server, child, killGroup);
  return {
    child,
    output,
    async kill() {
      const exited = child.exitCode === null && child.signalCode === null ? once(child, "exit") : null;
      killGroup();
      await exited;
    },
  };
}

function untilReady({ name, readyText }: ServerProgram, child: ChildProcess, kill: () => void): Promise<string> {
  return new Promise((resolve, reject) => {
    let output = "";
    const fail = (reason: string): void => {
      clearTimeout(timer);
      kill();
      reject(new Error(`${name} did not start (${reason}): ${output.slice(-2000)}`));
    };
    const timer = setTimeout(() => fail(`nothing after ${startTimeoutMs} ms`), startTimeoutMs);
    const read = (chunk: Buffer): void => {
      output += chunk.toString();
      if (typeof readyText === "string" ? !output.includes(readyText) : !readyText.test(output)) return;
      clearTimeout(timer);
      // The rest is its log, which is drained so that the pipe never fills.
      for (const stream of [child.stdout, child.stderr]) stream?.off("data", read).resume();
      resolve(output);
    };
    child.stdout?.on("data", read);
    child.stderr?.on("data", read);
    child.once("error", (error) => fail(error.message));
    child.once("exit", (code) => fail(`exit code ${code}`));
  });
}
