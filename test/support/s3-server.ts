/** Starts a real S3 server (moto) on a free port. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { S3Client, type S3ClientConfig } from "@aws-sdk/client-s3";

import { ensureMotoServer } from "./programs/s3.ts";

export interface S3Server {
  readonly endpoint: string;
  /** Path-style, with credentials that the server accepts. */
  readonly client: S3Client;
  /** Another client of the same server; the caller destroys it. */
  createClient(options?: S3ClientConfig): S3Client;
  /** Ends the server's process; its objects are lost. */
  stop(): Promise<void>;
}

const startTimeoutMs = 30_000;

export interface S3ServerOptions {
  /**
   * Calls answered before access keys and policies are enforced; null never enforces them. Includes the calls that
   * create a user, its policy and its key.
   */
  readonly numCallsBeforeAuth?: number | null;
}

export async function startS3Server({ numCallsBeforeAuth = null }: S3ServerOptions = {}): Promise<S3Server> {
  const program = await ensureMotoServer();
  const environment = { ...process.env, PYTHONUNBUFFERED: "1" };
  if (numCallsBeforeAuth !== null) {
    Object.assign(environment, { INITIAL_NO_AUTH_ACTION_COUNT: String(numCallsBeforeAuth) });
  }
  const child = spawn(program, ["-H", "127.0.0.1", "-p", "0"], { env: environment, stdio: ["ignore", "pipe", "pipe"] });
  const endWithUs = (): void => void child.kill("SIGKILL");
  process.once("exit", endWithUs);
  const endpoint = await waitForEndpoint(child);

  const createClient = (options: S3ClientConfig = {}): S3Client =>
    new S3Client({
      endpoint,
      forcePathStyle: true,
      region: "us-east-1",
      credentials: { accessKeyId: "test", secretAccessKey: "test" },
      ...options,
    });
  const client = createClient();
  return {
    endpoint,
    client,
    createClient,
    async stop() {
      client.destroy();
      process.off("exit", endWithUs);
      if (child.exitCode !== null || child.signalCode !== null) return;
      const exited = once(child, "exit");
      child.kill("SIGTERM");
      await exited;
    },
  };
}

function waitForEndpoint(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let output = "";
    const fail = (reason: string): void => {
      clearTimeout(timer);
      child.kill("SIGKILL");
      reject(new Error(`The S3 server did not start (${reason}): ${output.slice(-2000)}`));
    };
    const timer = setTimeout(() => fail(`nothing after ${startTimeoutMs} ms`), startTimeoutMs);
    const read = (chunk: Buffer): void => {
      output += chunk.toString();
      const match = /Running on (http:\/\/[\d.]+:\d+)/.exec(output);
      if (match === null) return;
      clearTimeout(timer);
      // The rest is its access log, which is drained so that the pipe never fills.
      output = "";
      for (const stream of [child.stdout, child.stderr]) stream?.off("data", read).resume();
      resolve(match[1]!);
    };
    child.stdout?.on("data", read);
    child.stderr?.on("data", read);
    child.once("error", (error) => fail(error.message));
    child.once("exit", (code) => fail(`exit code ${code}`));
  });
}
