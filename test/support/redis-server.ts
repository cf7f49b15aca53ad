/** Starts a real Redis server on a free port, for tests of sharing between replicas and of failures. */
import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { dirname, join } from "node:path";

import { ensureRedisServer } from "./programs/redis.ts";
import { createTemporaryFolder } from "./temporary-folder.ts";

export interface RedisServer {
  readonly url: string;
  readonly port: number;
  /** Ends the process at once, like a crash; its values are lost. Idempotent. */
  kill(): Promise<void>;
  /** The process stays, with its connections open, and does not answer until `resume`. */
  pause(): void;
  resume(): void;
  /** Runs one command with redis-cli and returns its output. Throws its error output. */
  command(...words: readonly string[]): string;
}

export interface RedisServerOptions {
  /** Default: a free one. */
  readonly port?: number;
  /** Additional arguments of redis-server. */
  readonly settings?: readonly string[];
}

const startTimeoutMs = 30_000;

export async function startRedisServer({ port, settings = [] }: RedisServerOptions = {}): Promise<RedisServer> {
  const program = await ensureRedisServer();
  const client = join(dirname(program), "redis-cli");
  const usedPort = port ?? (await freePort());
  const folder = await createTemporaryFolder();
  const child = spawn(
    program,
    [
      "--port",
      String(usedPort),
      "--bind",
      "127.0.0.1",
      "--dir",
      folder.path,
      "--save",
      "",
      "--appendonly",
      "no",
      ...settings,
    ],
    { stdio: ["ignore", "pipe", "pipe"] },
  );
  const endWithUs = (): void => void child.kill("SIGKILL");
  process.once("exit", endWithUs);
  await untilReady(child);
  return {
    url: `redis://127.0.0.1:${usedPort}`,
    port: usedPort,
    async kill() {
      process.off("exit", endWithUs);
      if (child.exitCode === null && child.signalCode === null) {
        const exited = once(child, "exit");
        child.kill("SIGKILL");
        await exited;
      }
      await folder[Symbol.asyncDispose]();
    },
    pause: () => void child.kill("SIGSTOP"),
    resume: () => void child.kill("SIGCONT"),
    command(...words) {
      const { status, stdout, stderr } = spawnSync(client, ["-p", String(usedPort), "-e", ...words], {
        encoding: "utf8",
      });
      if (status !== 0) throw new Error(`redis-cli ${words[0]}: ${stderr || stdout}`);
      return stdout.trim();
    },
  };
}

function untilReady(child: ChildProcess): Promise<void> {
  return new Promise((resolve, reject) => {
    let output = "";
    const fail = (reason: string): void => {
      clearTimeout(timer);
      child.kill("SIGKILL");
      reject(new Error(`redis-server did not start (${reason}): ${output.slice(-2000)}`));
    };
    const timer = setTimeout(() => fail(`nothing after ${startTimeoutMs} ms`), startTimeoutMs);
    const read = (chunk: Buffer): void => {
      output += chunk.toString();
      if (!output.includes("Ready to accept connections")) return;
      clearTimeout(timer);
      for (const stream of [child.stdout, child.stderr]) stream?.off("data", read).resume();
      resolve();
    };
    child.stdout?.on("data", read);
    child.stderr?.on("data", read);
    child.once("error", (error) => fail(error.message));
    child.once("exit", (code) => fail(`exit code ${code}`));
  });
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}
