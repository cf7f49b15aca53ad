import { randomUUID } from "node:crypto";
import { Queue } from "bullmq";
import { afterAll, beforeAll } from "vitest";

import { createRedisJobSource } from "../../../functions/jobs/sources/redis-job-source.ts";
import { createSqsJobSource } from "../../../functions/jobs/sources/sqs-job-source.ts";
import { LEASE_MS, testJobSource } from "../../contracts/job-source.ts";
import { startRedisServer } from "../../support/redis-server.ts";
import type { RedisServer } from "../../support/redis-server.ts";
import { startS3Server } from "../../support/s3-server.ts";
import type { S3Server } from "../../support/s3-server.ts";
import { createSqsQueue } from "../../support/sqs-queue.ts";

let redis: RedisServer;
let aws: S3Server;
const queues: Queue[] = [];

beforeAll(async () => {
  [redis, aws] = await Promise.all([startRedisServer(), startS3Server()]);
  process.env.AWS_ACCESS_KEY_ID = "test";
  process.env.AWS_SECRET_ACCESS_KEY = "test";
});

afterAll(async () => {
  await Promise.all(queues.map((queue) => queue.close()));
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
