/** Starts a real S3 server (moto) on a free port. */
import { S3Client, type S3ClientConfig } from "@aws-sdk/client-s3";

import { ensureMotoServer } from "../programs/s3.ts";
import { startServerProcess } from "./server-process.ts";

export interface S3Server {
  readonly endpoint: string;
  /** Path-style, with credentials that the server accepts. */
  readonly client: S3Client;
  /** Another client of the same server; the caller destroys it. */
  createClient(options?: S3ClientConfig): S3Client;
  /** Ends the server's process; its objects are lost. */
  stop(): Promise<void>;
}

/** Its last part is the port that the system chose. */
const readyText = /Running on (http:\/\/[\d.]+:\d+)/;

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
  const args = ["-H", "127.0.0.1", "-p", "0"];
  const server = await startServerProcess({ name: "The S3 server", program, args, environment, readyText });
  const endpoint = readyText.exec(server.output)![1]!;

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
      await server.kill();
    },
  };
}
