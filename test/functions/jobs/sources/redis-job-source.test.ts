/** Jobs from BullMQ. */
import { randomUUID } from "node:crypto";
import { Queue } from "bullmq";
import { afterAll, beforeAll } from "vitest";

import { createRedisJobSource } from "../../../../functions/jobs/sources/redis-job-source.ts";
import { LEASE_MS, testJobSource } from "../../../contracts/job-source.ts";
import { startRedisServer } from "../../../support/redis-server.ts";
import type { RedisServer } from "../../../support/redis-server.ts";

let redis: RedisServer;
const queues: Queue[] = [];

beforeAll(async () => {
  redis = await startRedisServer();
});

afterAll(async () => {
  await Promise.all(queues.map((queue) => queue.close()));
  await redis.kill();
});

testJobSource("BullMQ in Redis", async () => {
  const name = `jobs-${randomUUID()}`;
  const queue = new Queue(name, { connection: { url: redis.url } });
  queues.push(queue);
  return {
    open: async () =>
      createRedisJobSource({ url: redis.url, queue: name, prefix: "bull", leaseMs: LEASE_MS, waitSeconds: 1 }),
    async send(body, headers) {
      await queue.add("chat", JSON.parse(body), { telemetry: { metadata: JSON.stringify(headers ?? {}) } });
    },
    async deadLetters() {
      return (await queue.getFailed()).map(({ data }) => JSON.stringify(data));
    },
  };
});
