/** The command line as a child process, with collected output. */
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";

import { endWithRun } from "../servers/end-with-run.ts";
import { testDataHome } from "./test-data-home.ts";

const main = new URL("../../../functions/cli/main.js", import.meta.url).pathname;

export interface CliProcess extends AsyncDisposable {
  readonly child: ChildProcess;
  /** All output so far. */
  readonly stdout: () => string;
  readonly stderr: () => string;
  /** The first log line with this message; rejects when the process ends without one. */
  readonly waitForLog: (message: string) => Promise<Record<string, unknown>>;
  /** The exit code, once all output has arrived. */
  readonly exitCode: Promise<number | null>;
}

/** The environment contains only PATH, HOME, XDG_DATA_HOME and the given variables. Standard input is `input`. */
export function startCli(
  args: readonly string[],
  environment: Readonly<Record<string, string>> = {},
  input = "",
): CliProcess {
  const child = spawn(process.execPath, [main, ...args], {
    env: { PATH: process.env.PATH, HOME: process.env.HOME, XDG_DATA_HOME: testDataHome, ...environment },
    stdio: ["pipe", "pipe", "pipe"],
  });
  endWithRun(child);
  child.stdin.end(input);
  let stdout = "";
  let stderr = "";
  child.stdout.on("data", (chunk: Buffer) => (stdout += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (stderr += chunk.toString()));
  const exitCode = once(child, "close").then(([code]) => code as number | null);
  let hasEnded = false;
  void exitCode.then(() => (hasEnded = true));

  const findLog = (message: string): Record<string, unknown> | undefined =>
    stdout
      .split("\n")
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Record<string, unknown>)
      .find((line) => line.message === message);
  return {
    child,
    stdout: () => stdout,
    stderr: () => stderr,
    exitCode,
    async waitForLog(message) {
      for (;;) {
        const line = findLog(message);
        if (line !== undefined) return line;
        if (hasEnded) throw new Error(`The process ended without logging "${message}":\n${stdout}${stderr}`);
        await Promise.race([once(child.stdout, "data"), exitCode]);
      }
    },
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await exitCode;
    },
  };
}
