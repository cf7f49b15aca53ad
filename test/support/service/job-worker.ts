/** `fovea worker` as a process, with results on S3, and the results that are there. */
import { GetObjectCommand, ListObjectsV2Command } from "@aws-sdk/client-s3";

import type { S3Server } from "../servers/s3-server.ts";
import { startCli } from "./cli-process.ts";
import type { CliProcess } from "./cli-process.ts";

export interface WorkerOptions {
  readonly address: string;
  /** URL of S3. */
  readonly endpoint: string;
  readonly bucket: string;
  readonly prefix: string;
  /** Added to the time of the process. */
  readonly clockShiftMs?: number;
  readonly environment?: Readonly<Record<string, string>>;
}

/** The shortest that workers accept. */
const LEASE_SECONDS = 5;
/** Results that are read at once. */
const NUM_CONCURRENT = 20;

export function startWorker(options: WorkerOptions): CliProcess {
  const { address, endpoint, bucket, prefix, clockShiftMs = 0, environment } = options;
  return startCli(["worker"], {
    HOST: "127.0.0.1",
    PORT: "0",
    JOB_SOURCE: address,
    JOB_RESULTS: `s3://${bucket}/${prefix}`,
    JOB_LEASE_SECONDS: String(LEASE_SECONDS),
    MAX_NUM_SEQS: "4",
    SHUTDOWN_GRACE_SECONDS: "0.1",
    AWS_ENDPOINT_URL_S3: endpoint,
    AWS_REGION: "us-east-1",
    AWS_ACCESS_KEY_ID: "test",
    AWS_SECRET_ACCESS_KEY: "test",
    ...(clockShiftMs !== 0 && { NODE_OPTIONS: `--import=${shiftedClock(clockShiftMs)}` }),
    ...environment,
  });
}

/** The URL of a module that changes the clock of a process. */
function shiftedClock(shiftMs: number): string {
  const source = `const Real = Date; const now = () => Real.now() + ${shiftMs};
    globalThis.Date = class Date extends Real {
      constructor(...args) { super(...(args.length === 0 ? [now()] : args)); }
      static now() { return now(); }
    };`;
  return `data:text/javascript;base64,${Buffer.from(source).toString("base64")}`;
}

export interface StoredResult {
  readonly id: string;
  readonly custom_id: string | null;
  readonly response: { readonly status_code: number } | null;
  readonly error: { readonly code: string; readonly message: string } | null;
}

/** Resolves to the keys below a prefix. */
export async function listResults({ client }: S3Server, bucket: string, prefix: string): Promise<readonly string[]> {
  const keys: string[] = [];
  let token: string | undefined;
  do {
    const request = { Bucket: bucket, Prefix: `${prefix}/`, ContinuationToken: token };
    const { Contents = [], NextContinuationToken } = await client.send(new ListObjectsV2Command(request));
    keys.push(...Contents.map(({ Key = "" }) => Key));
    token = NextContinuationToken;
  } while (token !== undefined);
  return keys;
}

export async function readResults(s3: S3Server, bucket: string, prefix: string): Promise<readonly StoredResult[]> {
  const keys = [...(await listResults(s3, bucket, prefix))];
  const results: StoredResult[] = [];
  const read = async (): Promise<void> => {
    for (let key = keys.pop(); key !== undefined; key = keys.pop()) {
      const { Body } = await s3.client.send(new GetObjectCommand({ Bucket: bucket, Key: key }));
      results.push(JSON.parse((await Body?.transformToString()) ?? "") as StoredResult);
    }
  };
  await Promise.all(Array.from({ length: NUM_CONCURRENT }, read));
  return results;
}
