/** Jobs from BullMQ. */
import { randomUUID } from "node:crypto";
import { Queue } from "bullmq";
import { afterAll, beforeAll, expect, test, vi } from "vitest";

import { createRedisJobSource } from "../../../../functions/jobs/sources/redis-job-source.ts";
import { LEASE_MS, testJobSource } from "../../../contracts/job-source.ts";
import { startRedisServer } from "../../../support/servers/redis-server.ts";
import type { RedisServer } from "../../../support/servers/redis-server.ts";

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
    open: async (leaseMs) =>
      createRedisJobSource({ url: redis.url, queue: name, prefix: "bull", leaseMs, waitSeconds: 1 }),
    async send(body, headers) {
      await queue.add("chat", JSON.parse(body), { telemetry: { metadata: JSON.stringify(headers ?? {}) } });
    },
    async deadLetters() {
      return (await queue.getFailed()).map(({ data }) => JSON.stringify(data));
    },
  };
});

test("a job that a worker with a fast clock has released comes back in time", async () => {
  const name = `jobs-${randomUUID()}`;
  const queue = new Queue(name, { connection: { url: redis.url } });
  queues.push(queue);
  const open = () =>
    createRedisJobSource({ url: redis.url, queue: name, prefix: "bull", leaseMs: LEASE_MS, waitSeconds: 1 });
  const never = new AbortController().signal;
  await queue.add("chat", { n: 0 });
  const [fast, right] = [open(), open()];
  const [job] = await fast.take(1, never);
  vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + 3_600_000 });
  await job!.release(100);
  vi.useRealTimers();
  await expect.poll(async () => (await right.take(1, never)).map(({ id }) => id)).toEqual([job!.id]);
  await Promise.all([fast.close(), right.close()]);
});
