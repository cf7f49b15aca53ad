/** Jobs from BullMQ. */
import { randomUUID } from "node:crypto";
import { Queue } from "bullmq";
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";

import { createRedisJobSource } from "../../../../functions/jobs/sources/redis-job-source.ts";
import { createLogger } from "../../../../functions/logger.ts";
import { LEASE_MS, testJobSource } from "../../../contracts/job-source.ts";
import { freePort } from "../../../support/servers/free-port.ts";
import { startRedisServer } from "../../../support/servers/redis-server.ts";
import type { RedisServer } from "../../../support/servers/redis-server.ts";
import { startTcpProxy } from "../../../support/servers/tcp-proxy.ts";

let redis: RedisServer;
const queues: Queue[] = [];
const lines: string[] = [];
/** Far above what any wait takes, also on a busy machine. */
const WAIT_OPTIONS = { timeout: 60_000, interval: 20 } as const;
const logger = createLogger({ level: "info", write: (line) => void lines.push(line) });

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
      createRedisJobSource({ url: redis.url, queue: name, prefix: "bull", leaseMs, logger, waitSeconds: 1 }),
    async send(body, headers) {
      await queue.add("chat", JSON.parse(body), { telemetry: { metadata: JSON.stringify(headers ?? {}) } });
    },
    async deadLetters() {
      return (await queue.getFailed()).map(({ data }) => JSON.stringify(data));
    },
  };
});

test("data that is no JSON is handed out as it is, with the jobs beside it", async () => {
  const name = `jobs-${randomUUID()}`;
  const queue = new Queue(name, { connection: { url: redis.url } });
  queues.push(queue);
  await queue.pause();
  // As BullMQ for Python writes a number that is none.
  const data = '{"prompt": "a", "temperature": NaN}';
  const { id = "" } = await queue.add("chat", {});
  redis.command("hset", queue.toKey(id), "data", data);
  await queue.add("chat", { n: 1 });
  await queue.resume();
  const source = createRedisJobSource({ url: redis.url, queue: name, prefix: "bull", leaseMs: LEASE_MS, logger });
  const jobs = await source.take(2, new AbortController().signal);
  expect(jobs.map(({ body }) => body)).toEqual([data, '{"n":1}']);
  for (const job of jobs) await job.release(0);
  await source.close();
});

test("a queue that has reached its rate limit leaves the process time for other work", async () => {
  const name = `jobs-${randomUUID()}`;
  const queue = new Queue(name, { connection: { url: redis.url } });
  queues.push(queue);
  const limitMs = 2_000;
  await queue.setGlobalRateLimit(1, limitMs);
  await queue.addBulk([1, 2].map((n) => ({ name: "chat", data: { n } })));
  const source = createRedisJobSource({ url: redis.url, queue: name, prefix: "bull", leaseMs: LEASE_MS, logger });
  const taken: string[] = [];
  let numCalls = 0;
  while (taken.length < 2) {
    numCalls += 1;
    for (const job of await source.take(1, new AbortController().signal)) {
      taken.push(String(job.body));
      await job.complete({ jobId: job.id, isSuccess: true, text: "{}" });
    }
  }
  expect(taken).toEqual(['{"n":1}', '{"n":2}']);
  expect(numCalls).toBeLessThan(10);
  await source.close();
});

test("a queue whose Redis becomes a replica is read at the new primary", async () => {
  const [old, next] = await Promise.all([startRedisServer(), startRedisServer()]);
  await using proxy = await startTcpProxy(old.port);
  const url = `redis://127.0.0.1:${proxy.port}`;
  const source = createRedisJobSource({
    url,
    queue: "failover",
    prefix: "bull",
    leaseMs: LEASE_MS,
    logger,
    waitSeconds: 1,
  });
  const never = new AbortController().signal;
  expect(await source.take(1, never)).toEqual([]);
  old.command("replicaof", "127.0.0.1", String(next.port));
  proxy.leadTo(next.port);
  const queue = new Queue("failover", { connection: { url: next.url } });
  await queue.add("chat", { n: 1 });
  const take = async () => (await source.take(1, never).catch(() => [])).map(({ body }) => body);
  await expect.poll(take, WAIT_OPTIONS).toEqual(['{"n":1}']);
  await source.close();
  await queue.close();
  await Promise.all([old.kill(), next.kill()]);
}, 120_000);

test("a job that a worker with a slow clock has released comes back to it in time", async () => {
  const name = `jobs-${randomUUID()}`;
  const queue = new Queue(name, { connection: { url: redis.url } });
  queues.push(queue);
  const source = createRedisJobSource({
    url: redis.url,
    queue: name,
    prefix: "bull",
    leaseMs: LEASE_MS,
    logger,
    waitSeconds: 1,
  });
  const never = new AbortController().signal;
  await queue.add("chat", { n: 0 });
  vi.useFakeTimers({ toFake: ["Date"], now: Date.now() - 600_000 });
  onTestFinished(() => void vi.useRealTimers());
  const [job] = await source.take(1, never);
  await job!.release(100);
  await expect.poll(async () => (await source.take(1, never)).map(({ id }) => id)).toEqual([job!.id]);
  await source.close();
});

test("a job that a worker with a fast clock has released comes back in time", async () => {
  const name = `jobs-${randomUUID()}`;
  const queue = new Queue(name, { connection: { url: redis.url } });
  queues.push(queue);
  const open = () =>
    createRedisJobSource({ url: redis.url, queue: name, prefix: "bull", leaseMs: LEASE_MS, logger, waitSeconds: 1 });
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

test("a server that cannot be reached is logged once, and again when it can", async () => {
  const port = await freePort();
  const name = `jobs-${randomUUID()}`;
  const url = `redis://127.0.0.1:${port}`;
  lines.length = 0;
  const source = createRedisJobSource({ url, queue: name, prefix: "bull", leaseMs: LEASE_MS, logger, waitSeconds: 1 });
  const taking = source.take(1, new AbortController().signal);
  await vi.waitFor(() => expect(lines).not.toEqual([]), WAIT_OPTIONS);
  expect(JSON.parse(lines[0]!)).toMatchObject({
    level: "warn",
    message: "The Redis server of the queue of jobs cannot be used; waiting for it.",
    source: `redis://127.0.0.1:${port}, queue ${name}`,
    error: { code: "ECONNREFUSED" },
  });
  const late = await startRedisServer({ port });
  onTestFinished(() => late.kill());
  await taking;
  await source.close();
  expect(lines.map((line) => (JSON.parse(line) as { readonly message: string }).message)).toEqual([
    expect.stringContaining("cannot be used"),
    "The Redis server of the queue of jobs can be used again.",
  ]);
});
