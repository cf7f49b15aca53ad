import { randomUUID } from "node:crypto";
import { Queue } from "bullmq";
import { afterAll, beforeAll, expect, test } from "vitest";

import { createRedisJobSource } from "../../../functions/jobs/sources/redis-job-source.ts";
import { createRunpodJobSource } from "../../../functions/jobs/sources/runpod-job-source.ts";
import { createSqsJobSource } from "../../../functions/jobs/sources/sqs-job-source.ts";
import { createLogger } from "../../../functions/logger.ts";
import { LEASE_MS, testJobSource } from "../../contracts/job-source.ts";
import { startRedisServer } from "../../support/redis-server.ts";
import type { RedisServer } from "../../support/redis-server.ts";
import { startRunpodServer } from "../../support/runpod-server.ts";
import type { RunpodServer } from "../../support/runpod-server.ts";
import { startS3Server } from "../../support/s3-server.ts";
import type { S3Server } from "../../support/s3-server.ts";
import { createSqsQueue } from "../../support/sqs-queue.ts";

let redis: RedisServer;
let aws: S3Server;
const queues: Queue[] = [];
const runpodServers: RunpodServer[] = [];

beforeAll(async () => {
  [redis, aws] = await Promise.all([startRedisServer(), startS3Server()]);
  process.env.AWS_ACCESS_KEY_ID = "test";
  process.env.AWS_SECRET_ACCESS_KEY = "test";
});

afterAll(async () => {
  await Promise.all(queues.map((queue) => queue.close()));
  await Promise.all(runpodServers.map((server) => server.stop()));
  await redis.kill();
  await aws.stop();
});

testJobSource("BullMQ in Redis", async () => {
  const name = `jobs-${randomUUID()}`;
  const queue = new Queue(name, { connection: { url: redis.url } });
  queues.push(queue);
  return {
    open: async () =>
      createRedisJobSource({ url: redis.url, queue: name, prefix: "bull", leaseMs: LEASE_MS, waitSeconds: 1 }),
    async send(body) {
      await queue.add("chat", JSON.parse(body));
    },
    async deadLetters() {
      return (await queue.getFailed()).map(({ data }) => JSON.stringify(data));
    },
  };
});

testJobSource("SQS", async () => {
  const queue = await createSqsQueue(aws.endpoint, `jobs-${randomUUID()}`);
  return {
    open: async () =>
      createSqsJobSource({ queueUrl: queue.url, region: "us-east-1", leaseMs: LEASE_MS, waitSeconds: 1 }),
    send: queue.send,
    deadLetters: queue.deadLetters,
  };
});

testJobSource(
  "RunPod",
  async () => {
    const server = await startRunpodServer({ workerTimeoutMs: LEASE_MS });
    runpodServers.push(server);
    return {
      open: async () =>
        createRunpodJobSource({
          worker: server.worker(),
          pingMs: 200,
          listModels: () => ({}),
          logger: createLogger({ level: "debug", write: () => {} }),
        }),
      async send(body) {
        server.run(body);
      },
      deadLetters: async () =>
        server
          .jobs()
          .filter(({ status }) => status === "FAILED")
          .map(({ input }) => input),
    };
  },
  { releasesTo: "worker", expiresWith: "worker" },
);

test("the source of RunPod makes no call that RunPod's SDK would not make", () => {
  expect(runpodServers.flatMap(({ calls }) => calls).length).toBeGreaterThan(0);
  expect(runpodServers.flatMap(({ violations }) => violations)).toEqual([]);
});
