import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test, vi } from "vitest";

import { createLocalJobQueue } from "../../../functions/batch/local-job-queue.ts";
import { createRedisJobQueue } from "../../../functions/batch/redis-job-queue.ts";
import { createLogger } from "../../../functions/logger.ts";
import { tryLockFolder } from "../../../functions/storage/folder-lock.ts";
import { testJobQueue } from "../../contracts/job-queue.ts";
import { startRedisServer } from "../../support/servers/redis-server.ts";
import type { RedisServer } from "../../support/servers/redis-server.ts";
import { startTcpProxy } from "../../support/servers/tcp-proxy.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";

let folder: TemporaryFolder;
let redis: RedisServer;
let log = "";
const logger = createLogger({ level: "debug", write: (line) => (log += line) });

beforeAll(async () => {
  folder = await createTemporaryFolder();
  redis = await startRedisServer();
});

afterAll(async () => {
  await redis.kill();
  await folder[Symbol.asyncDispose]();
});

const options = { maxNumRunning: 2, retry: { firstMs: 50, mostMs: 100 }, logger };

testJobQueue("of one process, with a lock", {
  open: async (name) => createLocalJobQueue({ ...options, tryLock: async () => tryLockFolder(folder.path, name) }),
});

testJobQueue("Redis", {
  open: async (name) => createRedisJobQueue({ ...options, url: redis.url, keyPrefix: "test", name }),
});

function openRedisQueue(name: string) {
  return createRedisJobQueue({ ...options, url: redis.url, keyPrefix: "test", name, lockMs: 300 });
}

test("a worker that has lost its lock is notified, and the job starts again", async () => {
  const [first, second] = [openRedisQueue("lost"), openRedisQueue("lost")];
  const events: string[] = [];
  const finish = async (): Promise<"finished"> => {
    events.push("done");
    return "finished";
  };
  first.start(async (_, signal) => {
    if (events.length > 0) return finish();
    events.push("begun");
    // Simulates a process that hung for longer than the lock.
    redis.command("del", "test:lost:a:lock");
    await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
    events.push("told");
    return "released";
  });
  await first.add("a");
  await expect.poll(() => events[0]).toBe("begun");
  second.start(finish);
  await expect.poll(() => events.toSorted()).toEqual(["begun", "done", "told"]);
  await Promise.all([first.close(), second.close()]);
});

test("an unreachable Redis rejects jobs with a message and accepts them when it is reachable", async () => {
  const { port } = redis;
  await redis.kill();
  log = "";
  const queue = openRedisQueue("absent");
  const begun: string[] = [];
  queue.start(async (jobId) => {
    begun.push(jobId);
    return "finished";
  });
  await expect(queue.add("a")).rejects.toThrow(/Redis|Stream|Connection|connect/);
  expect(log.match(/The queue of batches does not work/g)).toHaveLength(1);
  redis = await startRedisServer({ port });
  await expect
    .poll(async () => {
      await queue.add("a").catch(() => {});
      return begun;
    })
    .toContain("a");
  await queue.close();
});

test.for([0, 50])("a queue closes although Redis became unreachable %i ms before", async (waitMs) => {
  await using proxy = await startTcpProxy(redis.port);
  const url = `redis://127.0.0.1:${proxy.port}`;
  const queue = createRedisJobQueue({ ...options, url, keyPrefix: "test", name: `cut-${waitMs}`, lockMs: 300 });
  queue.start(async () => "finished");
  await expect
    .poll(() =>
      queue.add("a").then(
        () => true,
        () => false,
      ),
    )
    .toBe(true);
  proxy.cut();
  await sleep(waitMs);
  await queue.close();
});

test("a queue whose Redis becomes a replica continues at the new primary", async () => {
  const [old, next] = await Promise.all([startRedisServer(), startRedisServer()]);
  await using proxy = await startTcpProxy(old.port);
  const url = `redis://127.0.0.1:${proxy.port}`;
  const queue = createRedisJobQueue({ ...options, url, keyPrefix: "test", name: "failover", lockMs: 300 });
  const begun: string[] = [];
  queue.start(async (jobId) => {
    begun.push(jobId);
    return "finished";
  });
  const add = (jobId: string) =>
    queue.add(jobId).then(
      () => true,
      () => false,
    );
  await expect.poll(() => add("a")).toBe(true);
  await expect.poll(() => begun).toEqual(["a"]);
  old.command("replicaof", "127.0.0.1", String(next.port));
  proxy.leadTo(next.port);
  await expect.poll(() => add("b"), { timeout: 60_000 }).toBe(true);
  await expect.poll(() => begun, { timeout: 60_000 }).toEqual(["a", "b"]);
  await queue.close();
  await Promise.all([old.kill(), next.kill()]);
}, 120_000);

test("a queue whose connections are forgotten on their way opens them again", async () => {
  await using proxy = await startTcpProxy(redis.port);
  const url = `redis://127.0.0.1:${proxy.port}`;
  // Longer than a call that waits for a job.
  const queue = createRedisJobQueue({ ...options, url, keyPrefix: "test", name: "forgotten", maxSilenceMs: 6_000 });
  const taken = Promise.withResolvers<string>();
  queue.start(async (jobId) => {
    if (jobId === "first") return "finished";
    taken.resolve(jobId);
    return "finished";
  });
  await queue.add("first");
  proxy.strand();
  const add = () =>
    queue.add("second").then(
      () => true,
      () => false,
    );
  await expect.poll(add, { timeout: 60_000 }).toBe(true);
  expect(await taken.promise).toBe("second");
  await queue.close();
}, 120_000);

test("a job whose attempt failed in a process with a fast clock is retried by another one in time", async () => {
  const [fast, right] = [openRedisQueue("fast"), openRedisQueue("fast")];
  const failed = Promise.withResolvers<void>();
  fast.start(async () => {
    vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + 3_600_000 });
    failed.resolve();
    throw new Error("It fails.");
  });
  await fast.add("a");
  await failed.promise;
  await expect.poll(() => redis.command("zcard", "test:fast:delayed")).toBe("1");
  vi.useRealTimers();
  await fast.close();
  const retried = Promise.withResolvers<string>();
  right.start(async (jobId) => {
    retried.resolve(jobId);
    return "finished";
  });
  expect(await retried.promise).toBe("a");
  await right.close();
});
