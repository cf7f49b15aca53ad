/** Workers as separate processes that end in the middle of their jobs, and others that take over. */
import { randomUUID } from "node:crypto";
import { CreateBucketCommand, GetObjectCommand, ListObjectsV2Command } from "@aws-sdk/client-s3";
import { Queue } from "bullmq";
import { afterAll, beforeAll, expect, test } from "vitest";

import type { ResultLine } from "../../../functions/batch/result-line.ts";
import { createSqsQueue } from "../../support/queues/sqs-queue.ts";
import { startFaultProxy } from "../../support/servers/fault-proxy.ts";
import { startRedisServer } from "../../support/servers/redis-server.ts";
import type { RedisServer } from "../../support/servers/redis-server.ts";
import { startS3Server } from "../../support/servers/s3-server.ts";
import type { S3Server } from "../../support/servers/s3-server.ts";
import { startCli } from "../../support/service/cli-process.ts";
import type { CliProcess } from "../../support/service/cli-process.ts";
import { createResultGate } from "../../support/service/result-gate.ts";

const bucket = "results";
const numJobs = 60;
const exiting = `${new URL("../../engine/exiting-processor.ts", import.meta.url).pathname}:Exiting`;

let redis: RedisServer;
let aws: S3Server;

beforeAll(async () => {
  [redis, aws] = await Promise.all([startRedisServer(), startS3Server()]);
  await aws.client.send(new CreateBucketCommand({ Bucket: bucket }));
});

afterAll(async () => {
  await redis.kill();
  await aws.stop();
});

const customIds = Array.from({ length: numJobs }, (_, index) => `job-${String(index).padStart(3, "0")}`);

function jobOf(custom_id: string, seed: number): object {
  return { custom_id, body: { prompt: "a red", max_tokens: 60, ignore_eos: true, temperature: 1, seed } };
}

interface TestQueue {
  readonly address: string;
  readonly send: (job: object) => Promise<void>;
  /** Jobs that are neither done nor rejected. */
  readonly numUnfinished: () => Promise<number>;
  readonly close: () => Promise<void>;
}

async function openRedisQueue(): Promise<TestQueue> {
  const name = `jobs-${randomUUID()}`;
  const queue = new Queue(name, { connection: { url: redis.url } });
  return {
    address: `${redis.url}?queue=${name}`,
    async send(job) {
      await queue.add("job", job);
    },
    async numUnfinished() {
      const { waiting = 0, active = 0, delayed = 0 } = await queue.getJobCounts("waiting", "active", "delayed");
      return waiting + active + delayed;
    },
    close: () => queue.close(),
  };
}

async function openSqsQueue(): Promise<TestQueue> {
  const queue = await createSqsQueue(aws.endpoint, `jobs-${randomUUID()}`);
  return {
    address: queue.address,
    send: (job) => queue.send(JSON.stringify(job)),
    async numUnfinished() {
      const { numVisible, numInFlight } = await queue.count();
      return numVisible + numInFlight;
    },
    async close() {},
  };
}

async function startWorker(
  address: string,
  prefix: string,
  environment: Readonly<Record<string, string>> = {},
): Promise<CliProcess> {
  const cli = startCli(["worker"], {
    HOST: "127.0.0.1",
    PORT: "0",
    JOB_SOURCE: address,
    JOB_RESULTS: `s3://${bucket}/${prefix}`,
    JOB_LEASE_SECONDS: "5",
    MAX_NUM_SEQS: "4",
    SHUTDOWN_GRACE_SECONDS: "0.1",
    AWS_ENDPOINT_URL_S3: aws.endpoint,
    AWS_REGION: "us-east-1",
    AWS_ACCESS_KEY_ID: "test",
    AWS_SECRET_ACCESS_KEY: "test",
    ...environment,
  });
  await cli.waitForLog("Taking jobs.");
  return cli;
}

async function storedResults(prefix: string): Promise<readonly ResultLine[]> {
  const { Contents = [] } = await aws.client.send(new ListObjectsV2Command({ Bucket: bucket, Prefix: `${prefix}/` }));
  return Promise.all(
    Contents.map(async ({ Key = "" }) => {
      const { Body } = await aws.client.send(new GetObjectCommand({ Bucket: bucket, Key }));
      return JSON.parse((await Body?.transformToString()) ?? "") as ResultLine;
    }),
  );
}

async function numStored(prefix: string): Promise<number> {
  const { KeyCount = 0 } = await aws.client.send(new ListObjectsV2Command({ Bucket: bucket, Prefix: `${prefix}/` }));
  return KeyCount;
}

test.for([
  ["BullMQ", "SIGKILL", openRedisQueue],
  ["BullMQ", "SIGTERM", openRedisQueue],
  ["SQS", "SIGKILL", openSqsQueue],
  ["SQS", "SIGTERM", openSqsQueue],
] as const)(
  "every job of %s has one result after workers ended by %s",
  { timeout: 120_000 },
  async ([, kill, open]) => {
    const queue = await open();
    const prefix = randomUUID();
    await using s3 = await startFaultProxy(aws.endpoint);
    const gate = createResultGate(s3, () => numStored(prefix));
    const environment = { AWS_ENDPOINT_URL_S3: s3.endpoint };
    for (const [seed, customId] of customIds.entries()) await queue.send(jobOf(customId, seed));
    for (let life = 1; life <= 2; life++) {
      await using worker = await startWorker(queue.address, prefix, environment);
      await gate.untilStored(8 * life, 60_000);
      worker.child.kill(kill);
      const code = await worker.exitCode;
      expect(code === null, worker.stdout()).toBe(kill === "SIGKILL");
    }
    expect(await numStored(prefix)).toBeLessThan(numJobs);
    gate.open();
    await using _ = await startWorker(queue.address, prefix, environment);
    await expect.poll(queue.numUnfinished, { timeout: 60_000, interval: 200 }).toBe(0);
    const results = await storedResults(prefix);
    expect(results.map(({ custom_id: id }) => id ?? "").toSorted()).toEqual(customIds);
    expect(results.every(({ response }) => response?.status_code === 200)).toBe(true);
    await queue.close();
  },
);

test("a job that ends the engine ends its worker, and after a count is rejected", { timeout: 240_000 }, async () => {
  const queue = await openRedisQueue();
  const prefix = randomUUID();
  // The processor ends the engine at its third step.
  for (const [customId, numTokens] of Object.entries({ poison: 9, "good-1": 1, "good-2": 1 })) {
    await queue.send({
      custom_id: customId,
      body: { prompt: "a", max_tokens: numTokens, ignore_eos: true, temperature: 0 },
    });
  }
  const exitCodes: (number | null)[] = [];
  while ((await queue.numUnfinished()) > 0) {
    // Alone, so that jobs beside it are not suspected as well.
    const settings = { LOGITS_PROCESSORS: exiting, JOB_MAX_DELIVERIES: "2", BATCH_MAX_NUM_SEQS: "1" };
    await using worker = await startWorker(queue.address, prefix, settings);
    let exitCode = undefined as number | null | undefined;
    void worker.exitCode.then((code) => (exitCode = code));
    await expect
      .poll(async () => exitCode !== undefined || (await queue.numUnfinished()) === 0, { timeout: 60_000 })
      .toBe(true);
    if (exitCode !== undefined) exitCodes.push(exitCode);
  }
  expect(exitCodes).toEqual([1, 1]);
  const results = new Map((await storedResults(prefix)).map((result) => [result.custom_id, result]));
  expect(results.get("poison")?.error?.code).toBe("too_many_deliveries");
  expect(results.get("good-1")?.response?.status_code).toBe(200);
  expect(results.get("good-2")?.response?.status_code).toBe(200);
  await queue.close();
});

test("a worker serves its health and metrics, and no requests", async () => {
  const queue = await openRedisQueue();
  await using worker = await startWorker(queue.address, randomUUID());
  const { port } = await worker.waitForLog("Listening.");
  const get = (path: string, init?: RequestInit): Promise<Response> =>
    fetch(`http://127.0.0.1:${String(port)}${path}`, init);
  expect((await get("/health")).status).toBe(200);
  expect(await (await get("/metrics")).text()).toContain("fovea_jobs_running");
  expect((await get("/v1/models")).status).toBe(404);
  expect((await get("/v1/chat/completions", { method: "POST", body: "{}" })).status).toBe(404);
  await queue.close();
});

const withoutAwsFiles = { AWS_CONFIG_FILE: "/nowhere", AWS_SHARED_CREDENTIALS_FILE: "/nowhere" };

test.for([
  [{}, /worker needs JOB_SOURCE/],
  [{ JOB_SOURCE: "kafka://host/topic" }, /JOB_SOURCE starts with kafka:\/\/; expected one of sqs:\/\//],
  [{ JOB_SOURCE: "redis://host" }, /names no queue/],
  [{ JOB_SOURCE: "sqs://host" }, /names no queue/],
  [{ JOB_SOURCE: "sqs" }, /names no queue/],
  [{ JOB_SOURCE: "sqs://" }, /names no queue/],
  [{ JOB_SOURCE: "sqs+http://" }, /names no queue/],
  [{ JOB_SOURCE: "sqs://a%zz/account/queue" }, /names no queue/],
  [{ JOB_SOURCE: "nats://me:50%@host/stream/consumer" }, /a % that is not encoded: write %25/],
  [{ JOB_SOURCE: "sqs://host/account/queue", ...withoutAwsFiles }, /names no region of AWS \(host\): set AWS_REGION/],
  [{ JOB_SOURCE: "a queue" }, /JOB_SOURCE .* expected an address/],
  [{ JOB_RESULTS: "nowhere" }, /JOB_RESULTS is "nowhere"/],
  [{ JOB_WEBHOOK_SECRET: "short" }, /JOB_WEBHOOK_SECRET has a value/],
] as const)("rejects %o with the reason and exit code 2", async ([environment, reason]) => {
  await using worker = startCli(["worker"], environment);
  expect(await worker.exitCode).toBe(2);
  expect(worker.stderr()).toMatch(reason);
});
