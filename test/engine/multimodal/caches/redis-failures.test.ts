/**
 * The effect on requests of a Redis that is slow, full, read-only, restarted, missing or foreign: more work, nothing
 * else.
 */
import { once } from "node:events";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { afterEach, describe, expect, test, vi } from "vitest";

import { startRedisServer } from "../../../support/servers/redis-server.ts";
import type { RedisServer, RedisServerOptions } from "../../../support/servers/redis-server.ts";
import { startTcpProxy } from "../../../support/servers/tcp-proxy.ts";
import { numbersOf } from "./numbers.ts";
import { createRedisCache, createUnconnectedRedisCache } from "./redis-caches.ts";
import type { RedisCache, RedisCacheOptions } from "./redis-caches.ts";

const never = new AbortController().signal;
const opened: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of opened.splice(0).reverse()) await close();
});

async function serverOf(options?: RedisServerOptions): Promise<RedisServer> {
  const server = await startRedisServer(options);
  opened.push(() => server.kill());
  return server;
}

async function cacheOf(url: string, options?: RedisCacheOptions): Promise<RedisCache> {
  const cache = await createRedisCache(url, options);
  opened.push(async () => cache[Symbol.asyncDispose]());
  return cache;
}

/** Sends one request for the key; returns whether it had to do the work. */
async function isProcessed({ processorCache }: RedisCache, key: string): Promise<boolean> {
  let isProcessed = false;
  const process = async (keys: readonly string[]): Promise<Float32Array[]> => {
    isProcessed = true;
    return keys.map((missing) => numbersOf(missing));
  };
  const values = await processorCache.getOrProcess([key], process, never);
  expect(values).toEqual([numbersOf(key)]);
  await processorCache.cache.settled();
  return isProcessed;
}

/** Sends requests until one is served from Redis again. */
async function expectRecovery(cache: RedisCache, key: string): Promise<void> {
  await expect.poll(async () => isProcessed(cache, key), { interval: 20 }).toBe(false);
  expect(cache.store.state).toEqual({ canRead: true, canWrite: true });
}

describe("replicas on one Redis", () => {
  test("a second replica reuses what the first has processed, in one round trip", async () => {
    const server = await serverOf();
    const [first, second] = [await cacheOf(server.url), await cacheOf(server.url)];
    const keys = ["a", "b", "c"];
    await first.processorCache.getOrProcess(keys, async (missing) => missing.map((key) => numbersOf(key)), never);
    await first.processorCache.cache.settled();
    server.command("config", "resetstat");
    const neverProcess = (): Promise<never> => Promise.reject(new Error("it was processed again"));
    expect(await second.processorCache.getOrProcess(keys, neverProcess, never)).toEqual(
      keys.map((key) => numbersOf(key)),
    );
    expect(server.command("info", "commandstats")).toMatch(/cmdstat_mget:calls=1,/);
    expect(second.tier.stats).toMatchObject({ queries: 3, hits: 3, errors: 0 });
  });

  test("values expire after their lifetime, and values above the limit are never written", async () => {
    const server = await serverOf();
    const cache = await cacheOf(server.url, { timeToLiveSeconds: 1_000, maxValueBytes: 2_000 });
    await isProcessed(cache, "a");
    expect(Number(server.command("ttl", "test:a"))).toBeGreaterThan(900);
    const large = new Float32Array(1_000);
    expect(await cache.processorCache.getOrProcess(["large"], async () => [large], never)).toEqual([large]);
    await cache.processorCache.cache.settled();
    expect(server.command("exists", "test:large")).toBe("0");
  });

  test.for(["altered", "cut off", "foreign", "of another key", "of another type"])(
    "a value that is %s is a miss, is counted and is replaced",
    async (damage) => {
      const server = await serverOf();
      const cache = await cacheOf(server.url);
      await isProcessed(cache, "a");
      await isProcessed(cache, "b");
      const damages: Record<string, () => unknown> = {
        altered: () => server.command("setrange", "test:a", "777", "x"),
        "cut off": () =>
          server.command("eval", "redis.call('set', 'test:a', redis.call('getrange', 'test:a', 0, 500))", "0"),
        foreign: () => server.command("set", "test:a", "somebody else's"),
        "of another key": () => server.command("copy", "test:b", "test:a", "replace"),
        "of another type": () =>
          server.command("eval", "redis.call('del', 'test:a'); redis.call('lpush', 'test:a', 1)", "0"),
      };
      damages[damage]!();
      expect(await isProcessed(cache, "a")).toBe(true);
      expect(await isProcessed(cache, "a")).toBe(false);
      // MGET skips values that are not strings, so nothing is noticed.
      expect(cache.tier.stats).toMatchObject({ errors: 0, refusedValues: damage === "of another type" ? 0 : 1 });
    },
  );
});

test("a value of another kind with the same key is a miss, is counted and is replaced", async () => {
  const server = await serverOf();
  const cache = await cacheOf(server.url);
  const other = await cacheOf(server.url, { keyPrefix: "other:" });
  await isProcessed(other, "a");
  server.command("copy", "other:a", "test:a");
  expect(await isProcessed(cache, "a")).toBe(true);
  expect(await isProcessed(cache, "a")).toBe(false);
  expect(cache.tier.stats).toMatchObject({ errors: 0, refusedValues: 1 });
});

describe("a Redis in trouble", () => {
  test("killed: requests do the work; restarted: it is used again without a restart of the service", async () => {
    const server = await serverOf();
    const cache = await cacheOf(server.url);
    await isProcessed(cache, "a");
    await server.kill();
    for (const _ of Array.from({ length: 5 })) expect(await isProcessed(cache, "a")).toBe(true);
    expect(cache.store.state.canRead).toBe(false);
    expect(cache.tier.stats.errors).toBe(1);
    await serverOf({ port: server.port });
    await expectRecovery(cache, "a");
    expect(cache.log.join("")).toContain("Redis is connected again");
  });

  test("silent: the first request waits for one timeout, later ones skip it, until it answers again", async () => {
    const server = await serverOf();
    const commandTimeoutMs = 1_000;
    const cache = await cacheOf(server.url, { commandTimeoutMs });
    await isProcessed(cache, "a");
    server.pause();
    const start = performance.now();
    expect(await isProcessed(cache, "a")).toBe(true);
    expect(performance.now() - start).toBeGreaterThanOrEqual(commandTimeoutMs - 5);
    const reading = vi.spyOn(cache.connection, "getMany");
    for (const _ of Array.from({ length: 10 })) expect(await isProcessed(cache, "a")).toBe(true);
    // Probes aside, nothing is read.
    expect(reading.mock.calls.filter(([keys]) => keys.includes("test:a"))).toEqual([]);
    expect(cache.tier.stats.errors).toBe(1);
    server.resume();
    await expectRecovery(cache, "a");
    expect(reading).toHaveBeenCalledWith(["test:a"]);
    expect(cache.log.filter((line) => line.includes("in time"))).toEqual([
      expect.stringMatching(/"warn".*does not answer in time.*"timeoutMs":1000/),
      expect.stringMatching(/"info".*answers in time again/),
    ]);
  });

  test("behind a connection that is forgotten on its way: it is opened again", async () => {
    const server = await serverOf();
    await using proxy = await startTcpProxy(server.port);
    const cache = await cacheOf(`redis://127.0.0.1:${proxy.port}`, { maxSilenceMs: 500 });
    await isProcessed(cache, "a");
    proxy.strand();
    expect(await isProcessed(cache, "a")).toBe(true);
    await expectRecovery(cache, "a");
    expect(proxy.numConnections).toBeGreaterThan(1);
  });

  test("in time while this process was busy: its answer is used, however late it is read", async () => {
    const server = await serverOf();
    await isProcessed(await cacheOf(server.url), "a");
    const commandTimeoutMs = 50;
    const cache = await cacheOf(server.url, { commandTimeoutMs });
    const numRead = () => Number(/cmdstat_mget:calls=(\d+)/.exec(server.command("info", "commandstats"))![1]);
    const before = numRead();
    const asking = cache.tier.getMany(["a"]);
    const end = performance.now() + 4 * commandTimeoutMs;
    // Both wait without a turn of the event loop.
    while (performance.now() < end || numRead() === before);
    expect(await asking).toEqual([numbersOf("a")]);
    expect(cache.tier.stats.errors).toBe(0);
  });

  test("full: its values are read, rejected writes pause, and freed memory is used again", async () => {
    const server = await serverOf();
    const cache = await cacheOf(server.url);
    await isProcessed(cache, "a");
    server.command("config", "set", "maxmemory", "1");
    expect(await isProcessed(cache, "b")).toBe(true);
    expect(cache.store.state).toEqual({ canRead: true, canWrite: false });
    expect(await isProcessed(cache, "a")).toBe(false);
    expect(await isProcessed(cache, "b")).toBe(true);
    expect(cache.tier.stats.errors).toBe(1);
    server.command("config", "set", "maxmemory", "0");
    await expectRecovery(cache, "b");
    const told = cache.log.filter((line) => /"warn"|accepts/.test(line));
    expect(told).toEqual([
      expect.stringMatching(/Redis rejects writes.*OOM command not allowed/),
      expect.stringContaining("Redis accepts writes again"),
    ]);
  });

  test("evicting old values: requests do the work, nothing fails", async () => {
    const server = await serverOf({ settings: ["--maxmemory", "4mb", "--maxmemory-policy", "allkeys-lru"] });
    const cache = await cacheOf(server.url);
    for (const index of Array(100).keys()) {
      const large = new Float32Array(50_000).fill(index);
      await cache.processorCache.getOrProcess([`${index}`], async () => [large], never);
      await cache.processorCache.cache.settled();
    }
    expect(cache.tier.stats.errors).toBe(0);
    expect(Number(server.command("dbsize"))).toBeLessThan(30);
  });

  test("a read-only replica: its values are read", async () => {
    const server = await serverOf();
    const cache = await cacheOf(server.url);
    await isProcessed(cache, "a");
    server.command("replicaof", "127.0.0.1", "1");
    expect(await isProcessed(cache, "b")).toBe(true);
    expect(await isProcessed(cache, "a")).toBe(false);
    expect(cache.store.state).toEqual({ canRead: true, canWrite: false });
    server.command("replicaof", "no", "one");
    await expectRecovery(cache, "b");
  });

  test("a primary that a failover makes a replica: its connections move to the new primary", async () => {
    const [old, next] = [await serverOf(), await serverOf()];
    const proxy = await startTcpProxy(old.port);
    opened.push(async () => proxy[Symbol.asyncDispose]());
    const cache = await cacheOf(`redis://127.0.0.1:${proxy.port}`, { minConnectionAgeMs: 0 });
    await isProcessed(cache, "a");
    old.command("replicaof", "127.0.0.1", String(next.port));
    proxy.leadTo(next.port);
    await expectRecovery(cache, "b");
    expect(Number(next.command("exists", "test:b"))).toBe(1);
    expect(cache.log.filter((line) => /"warn"|again/.test(line))).toEqual([
      expect.stringMatching(/Redis rejects writes.*READONLY/),
      expect.stringContaining("Redis accepts writes again"),
    ]);
  });

  test("a user with read rights only gets hits, and no request fails", async () => {
    const server = await serverOf();
    const writer = await cacheOf(server.url);
    await isProcessed(writer, "a");
    server.command("acl", "setuser", "reader", "on", ">secret", "~test:*", "+mget", "+client", "+hello");
    const reader = createUnconnectedRedisCache(`redis://reader:secret@127.0.0.1:${server.port}`);
    opened.push(async () => reader[Symbol.asyncDispose]());
    await expect.poll(async () => isProcessed(reader, "a"), { interval: 20 }).toBe(false);
    expect(await isProcessed(reader, "b")).toBe(true);
    expect(reader.store.state).toEqual({ canRead: true, canWrite: false });
  });

  test("a wrong password: requests do the work, one warning omits it; once it is correct, Redis is used", async () => {
    const server = await serverOf({ settings: ["--requirepass", "right"] });
    const cache = createUnconnectedRedisCache(`redis://:wr0ng@127.0.0.1:${server.port}`);
    opened.push(async () => cache[Symbol.asyncDispose]());
    const deadline = performance.now() + 500;
    while (performance.now() < deadline) {
      expect(await isProcessed(cache, "a")).toBe(true);
      await delay(20);
    }
    expect(cache.log.filter((line) => line.includes('"warn"'))).toHaveLength(1);
    expect(cache.log.join("")).not.toContain("wr0ng");
    server.command("-a", "right", "config", "set", "requirepass", "wr0ng");
    await expectRecovery(cache, "a");
  });

  test("a node of a cluster: requests do the work, and one warning says that REDIS_URL must name a single server", async () => {
    const server = await serverOf({ settings: ["--cluster-enabled", "yes"] });
    const slots = Array.from({ length: 16_384 }, (_, slot) => String(slot));
    server.command("cluster", "addslots", ...slots);
    await expect.poll(() => server.command("cluster", "info")).toContain("cluster_state:ok");
    const cache = await cacheOf(server.url);
    const keys = ["a", "b", "c"];
    const process = async (missing: readonly string[]) => missing.map((key) => numbersOf(key));
    for (const _ of Array.from({ length: 3 })) {
      expect(await cache.processorCache.getOrProcess(keys, process, never)).toEqual(keys.map((key) => numbersOf(key)));
      await cache.processorCache.cache.settled();
      await expect.poll(() => cache.store.state.canRead).toBe(true);
    }
    const warnings = cache.log.filter((line) => line.includes('"warn"'));
    expect(warnings).toEqual([expect.stringMatching(/node of a cluster.*REDIS_URL must name a single server/)]);
  });

  test.for([
    ["a number", ":7\r\n"],
    ["nothing", "*-1\r\n"],
    ["a text", "$5\r\nhello\r\n"],
    ["numbers", "*1\r\n:9\r\n"],
    ["too many texts", "*2\r\n$1\r\na\r\n$1\r\nb\r\n"],
  ])("that answers reads with %s: requests do the work, and one warning says so", async ([, reply]) => {
    const server = createServer((socket) => {
      socket.on("error", () => {});
      socket.on("data", (command) => {
        for (const _ of command.toString().match(/\bMGET\b/gi) ?? []) socket.write(reply!);
        for (const _ of command.toString().match(/\b(?:HELLO|SET|CLIENT|SELECT)\b/gi) ?? []) socket.write("+OK\r\n");
      });
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    opened.push(async () => void server.close());
    const cache = createUnconnectedRedisCache(`redis://127.0.0.1:${(server.address() as AddressInfo).port}`);
    opened.push(async () => cache[Symbol.asyncDispose]());
    await expect
      .poll(async () => (await isProcessed(cache, "a")) && cache.log.some((line) => line.includes("answer MGET")))
      .toBe(true);
    expect(await isProcessed(cache, "a")).toBe(true);
    expect(cache.log.filter((line) => line.includes("answer MGET"))).toHaveLength(1);
  });

  test("missing: requests do the work, and the process can end", async () => {
    const cache = createUnconnectedRedisCache("redis://127.0.0.1:1");
    opened.push(async () => cache[Symbol.asyncDispose]());
    for (const _ of Array.from({ length: 5 })) expect(await isProcessed(cache, "a")).toBe(true);
    expect(cache.store.state).toEqual({ canRead: false, canWrite: false });
    expect(cache.tier.stats).toMatchObject({ errors: 1, hits: 0 });
  });
});
