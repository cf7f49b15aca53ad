/** Starts a real Redis server on a free port, for tests of sharing between replicas and of failures. */
import { spawnSync } from "node:child_process";
import { dirname, join } from "node:path";

import { ensureRedisServer } from "../programs/redis.ts";
import { createTemporaryFolder } from "../temporary-folder.ts";
import { freePort } from "./free-port.ts";
import { startServerProcess } from "./server-process.ts";

export interface RedisServer {
  readonly url: string;
  readonly port: number;
  /** Ends the process at once, like a crash; its values are lost. Idempotent. */
  kill(): Promise<void>;
  /** A crash and another start with the same port and folder. Without `--appendonly yes` its values are lost. */
  restart(): Promise<void>;
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

export async function startRedisServer({ port, settings = [] }: RedisServerOptions = {}): Promise<RedisServer> {
  const program = await ensureRedisServer();
  const client = join(dirname(program), "redis-cli");
  const usedPort = port ?? (await freePort());
  const folder = await createTemporaryFolder();
  const address = ["--port", String(usedPort), "--bind", "127.0.0.1", "--dir", folder.path, "--save", ""];
  const args = [...address, "--appendonly", "no", ...settings];
  const readyText = "Ready to accept connections";
  const start = () => startServerProcess({ name: "redis-server", program, args, readyText });
  let server = await start();
  return {
    url: `redis://127.0.0.1:${usedPort}`,
    port: usedPort,
    async kill() {
      await server.kill();
      await folder[Symbol.asyncDispose]();
    },
    async restart() {
      await server.kill();
      server = await start();
    },
    pause: () => void server.child.kill("SIGSTOP"),
    resume: () => void server.child.kill("SIGCONT"),
    command(...words) {
      const { status, stdout, stderr } = spawnSync(client, ["-p", String(usedPort), "-e", ...words], {
        encoding: "utf8",
      });
      if (status !== 0) throw new Error(`redis-cli ${words[0]}: ${stderr || stdout}`);
      return stdout.trim();
    },
  };
}
