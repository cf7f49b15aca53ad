/** Files and batches that expire, in a folder and on a real S3 server, swept by servers whose clocks may be wrong. */
import { join } from "node:path";
import { CreateBucketCommand } from "@aws-sdk/client-s3";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { createFolderResultLogs } from "../../../functions/batch/folder-result-logs.ts";
import { createRedisJobQueue } from "../../../functions/batch/redis-job-queue.ts";
import { responseLine } from "../../../functions/batch/result-line.ts";
import type { ResultLogs } from "../../../functions/batch/result-log.ts";
import { createSegmentedResultLogs } from "../../../functions/batch/segmented-result-logs.ts";
import { createLogger } from "../../../functions/logger.ts";
import { createFolderObjectStore } from "../../../functions/storage/folder-object-store.ts";
import type { ObjectStore } from "../../../functions/storage/object-store.ts";
import { createS3ObjectStore } from "../../../functions/storage/s3-object-store.ts";
import { startRedisServer } from "../../support/servers/redis-server.ts";
import type { RedisServer } from "../../support/servers/redis-server.ts";
import { startS3Server } from "../../support/servers/s3-server.ts";
import type { S3Server } from "../../support/servers/s3-server.ts";
import {
  createBatchServer,
  dayMs,
  linesOf,
  queueOptions,
  startMs,
  tenant,
} from "../../support/service/batch-server.ts";
import type { BatchServer, BatchServerOptions } from "../../support/service/batch-server.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";

const hourMs = dayMs / 24;
const tickMs = hourMs / 2;
const retentionMs = 30 * dayMs;
const silent = createLogger({ level: "error", write() {} });
const everything = [
  "files",
  "contents",
  "expiries",
  "batches",
  "endings",
  "unfinished",
  "cancellations",
  "results",
] as const;

let folder: TemporaryFolder;
let redis: RedisServer;
let s3: S3Server;
let numStores = 0;

beforeAll(async () => {
  [folder, redis, s3] = await Promise.all([createTemporaryFolder(), startRedisServer(), startS3Server()]);
  await s3.client.send(new CreateBucketCommand({ Bucket: "batches" }));
});

afterAll(async () => {
  await Promise.all([folder[Symbol.asyncDispose](), redis.kill(), s3.stop()]);
});

interface Place {
  readonly store: ObjectStore;
  readonly logs: ResultLogs;
  readonly clock: { nowMs: number };
}

const places: Readonly<Record<string, () => Place>> = {
  "a folder"() {
    const path = join(folder.path, `store-${numStores++}`);
    const logs = createFolderResultLogs(join(path, "results"), silent);
    return { store: createFolderObjectStore(path), logs, clock: { nowMs: startMs } };
  },
  S3() {
    const prefix = `store-${numStores++}`;
    const timeouts = { callMs: 60_000, bodyMs: 60_000 };
    const store = createS3ObjectStore({ client: s3.createClient(), bucket: "batches", prefix, timeouts });
    const retry = { retryMs: { first: 5, most: 10 }, maxNumAttempts: 3 };
    return {
      store,
      logs: createSegmentedResultLogs({ store, flushMs: 5, ...retry, logger: silent }),
      clock: { nowMs: startMs },
    };
  },
};

function open(place: Place, options: Partial<BatchServerOptions> = {}): BatchServer {
  return createBatchServer({ ...place, retentionMs, ...options });
}

/** Ticks less often than a server does, which changes nothing. */
async function pass(servers: readonly BatchServer[], clock: { nowMs: number }, ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += tickMs) {
    clock.nowMs += tickMs;
    for (const { batches } of servers) await batches.sweep.tick();
  }
}

/** Lets a time pass in which no server runs, until it has swept again. */
async function passWithout(server: BatchServer, clock: { nowMs: number }, ms: number): Promise<void> {
  clock.nowMs += ms;
  await pass([server], clock, 2 * hourMs);
}

async function complete(place: Place, server: BatchServer, prompts = ["a", "b"]) {
  await server.batches.start();
  const id = await server.queueLines(linesOf(prompts));
  await expect.poll(async () => (await server.batches.find(tenant, id))?.status).toBe("completed");
  await expect.poll(async () => (await place.store.list("unfinished/")).length).toBe(0);
  return (await server.batches.find(tenant, id))!;
}

async function keys(store: ObjectStore): Promise<string[]> {
  return (await Promise.all(everything.map((each) => store.list(`${each}/`)))).flat();
}

async function close(...servers: BatchServer[]): Promise<void> {
  for (const server of servers) await server.stop();
}

describe.for(Object.keys(places))("in %s", (kind) => {
  const createPlace = places[kind]!;

  test("nothing is left of a batch once its retention is over, and nothing is removed before", async () => {
    const place = createPlace();
    const server = open(place);
    const { id, output_file_id: output } = await complete(place, server);
    const before = await keys(place.store);
    await pass([server], place.clock, hourMs);
    await passWithout(server, place.clock, retentionMs - 4 * hourMs);
    expect(await keys(place.store)).toEqual(before);
    expect(await server.results(output)).toHaveLength(2);
    expect(server.batches.isPastRetention(id)).toBe(false);
    await pass([server], place.clock, 3 * hourMs);
    expect(await keys(place.store)).toEqual([]);
    expect(await server.batches.find(tenant, id)).toBeNull();
    expect(server.batches.isPastRetention(id)).toBe(true);
    expect(await server.batches.files.find(tenant, output!)).toBeNull();
    expect(await server.batches.files.hasExpired(tenant, output!)).toBe(true);
    await close(server);
  });

  test("a file with a lifetime of its own expires after it, also without a retention", async () => {
    const place = createPlace();
    const server = createBatchServer(place);
    const { files } = server.batches;
    const ids = [3600, 5 * 3600, null].map((seconds) => [files.newId(), seconds] as const);
    for (const [id, expiresAfterSeconds] of ids) {
      const numBytes = await files.receive(id, oneChunk("x"));
      const file = { id, numBytes, filename: "in.jsonl", purpose: "batch" as const, expiresAfterSeconds };
      const { expires_at: expiresAt } = await files.publish(tenant, file);
      expect(expiresAt).toBe(expiresAfterSeconds === null ? undefined : startMs / 1000 + expiresAfterSeconds);
    }
    place.clock.nowMs += hourMs;
    const listed = await files.list(tenant, { limit: 10, after: null, order: "asc" }, null);
    expect(listed.items.map(({ id }) => id)).toEqual([ids[1]![0], ids[2]![0]].toSorted());
    const created = await server.batches.create(tenant, {
      inputFileId: ids[0]![0],
      endpoint: "/v1/completions",
      metadata: null,
    });
    expect(created.kind).toBe("unknown file");
    // Not removed yet.
    expect(await files.hasExpired(tenant, ids[0]![0])).toBe(true);
    expect(await files.hasExpired(tenant, ids[1]![0])).toBe(false);
    await pass([server], place.clock, 2 * hourMs);
    expect((await keys(place.store)).filter((key) => key.includes(ids[0]![0]))).toEqual([]);
    expect((await keys(place.store)).filter((key) => key.includes(ids[1]![0]))).toHaveLength(3);
    // A client deletes the entry with its file.
    await files.delete(tenant, ids[1]![0]);
    expect(await keys(place.store)).toEqual([`files/all.${ids[2]![0]}`, `contents/${ids[2]![0]}`]);
    await passWithout(server, place.clock, 100 * retentionMs);
    expect(await files.find(tenant, ids[2]![0])).not.toBeNull();
    await close(server);
  });

  test("results live as long as their batch asked for, from their creation", async () => {
    const place = createPlace();
    const server = open(place);
    await server.batches.start();
    const input = (await complete(place, server)).input_file_id;
    const created = await server.batches.create(tenant, {
      inputFileId: input,
      endpoint: "/v1/completions",
      metadata: null,
      outputExpiresAfterSeconds: 3600,
    });
    const id = created.kind === "created" ? created.batch.id : "";
    await expect.poll(async () => (await server.batches.find(tenant, id))?.status).toBe("completed");
    const output = (await server.batches.find(tenant, id))!.output_file_id!;
    expect(await server.batches.files.find(tenant, output)).toMatchObject({ expires_at: startMs / 1000 + 3600 });
    await pass([server], place.clock, 3 * hourMs);
    expect(await place.store.list("contents/")).not.toContain(`contents/${output}`);
    expect(await server.batches.find(tenant, id)).toMatchObject({ output_file_id: output });
    expect(await server.batches.files.find(tenant, input)).not.toBeNull();
    await close(server);
  });

  test("the input of an unfinished batch outlives its expiry until the batch has ended", async () => {
    const place = createPlace();
    const { promise: held, resolve: proceed } = Promise.withResolvers<void>();
    const reached = Promise.withResolvers<void>();
    const server = open(place, {
      retentionMs: hourMs,
      numTogether: 1,
      script(prompt) {
        if (prompt !== "slow") return ["x"];
        reached.resolve();
        return [held, "x"];
      },
    });
    await server.batches.start();
    const id = await server.queueLines(linesOf(["a", "slow", "b"]));
    await reached.promise;
    await pass([server], place.clock, 3 * hourMs);
    const { input_file_id: input } = (await server.batches.find(tenant, id))!;
    expect(await server.batches.files.find(tenant, input)).toBeNull();
    expect(await place.store.list("contents/")).toContain(`contents/${input}`);
    // Another attempt reads the input again.
    const stopped = server.stop();
    proceed();
    await stopped;
    const next = open(place, { retentionMs: hourMs });
    await next.batches.start();
    await expect.poll(async () => (await next.batches.find(tenant, id))?.status).toBe("completed");
    await expect.poll(async () => (await place.store.list("unfinished/")).length).toBe(0);
    await pass([next], place.clock, 2 * hourMs);
    expect(await place.store.list("contents/")).not.toContain(`contents/${input}`);
    await close(next);
  });

  test("removes bytes and results that no record names, but no upload in progress", async () => {
    const place = createPlace();
    const server = open(place);
    const { files } = server.batches;
    const old = files.newId();
    await files.receive(old, oneChunk("of a killed server"));
    const { id } = await complete(place, server, ["a"]);
    const late = await place.logs.open(`all.${id}`, new AbortController().signal);
    await late.append(responseLine("a", { statusCode: 200, requestId: "1", body: {} }));
    await late.close();
    await pass([server], place.clock, hourMs);
    await passWithout(server, place.clock, dayMs);
    const young = files.newId();
    await files.receive(young, oneChunk("being uploaded"));
    await pass([server], place.clock, hourMs);
    expect(await place.store.list("contents/")).not.toContain(`contents/${old}`);
    expect(await place.store.list("contents/")).toContain(`contents/${young}`);
    await files.publish(tenant, { id: young, numBytes: 14, filename: "in.jsonl", purpose: "batch" });
    expect(await place.store.list("results/")).toHaveLength(1);
    await passWithout(server, place.clock, retentionMs + dayMs);
    expect(await keys(place.store)).toEqual([]);
    await close(server);
  });
});

test("two servers on S3 and Redis that sweep at once remove everything", async () => {
  const place = places.S3!();
  const queue = () =>
    createRedisJobQueue({
      ...queueOptions,
      url: redis.url,
      keyPrefix: "test",
      name: "retention",
      lockMs: 1e4,
      logger: silent,
    });
  const [one, other] = [open(place, { queue: queue() }), open(place, { queue: queue() })];
  await complete(place, one);
  await complete(place, other);
  place.clock.nowMs += retentionMs - 3 * hourMs;
  await pass([one, other], place.clock, 2 * hourMs);
  expect(await place.store.list("files/")).toHaveLength(4);
  place.clock.nowMs += 3 * hourMs;
  await Promise.all([one.batches.sweep.tick(), other.batches.sweep.tick()]);
  expect(await keys(place.store)).toEqual([]);
  expect(`${one.log()}${other.log()}`).not.toContain("could not be removed");
  await close(one, other);
});

describe("a clock that is wrong", () => {
  test("on one of two servers removes nothing", async () => {
    const place = places["a folder"]!();
    const right = open(place);
    const wrongClock = { nowMs: startMs + 10 * retentionMs };
    const wrong = open({ ...place, clock: wrongClock });
    await complete(place, right);
    const before = await keys(place.store);
    for (let hours = 0; hours < 24; hours++) {
      await pass([right], place.clock, hourMs);
      await pass([wrong], wrongClock, hourMs);
    }
    expect(await keys(place.store)).toEqual(before);
    await close(right, wrong);
  });

  test("after it jumped while the server ran removes nothing for an hour, and everything once it stays", async () => {
    const place = places["a folder"]!();
    const steady = { nowMs: 0 };
    const server = open(place, { retentionMs: 5 * hourMs, steadyNow: () => steady.nowMs });
    const run = async (ms: number): Promise<void> => {
      for (let passed = 0; passed < ms; passed += tickMs) {
        steady.nowMs += tickMs;
        await pass([server], place.clock, tickMs);
      }
    };
    await complete(place, server);
    await run(hourMs);
    const before = await keys(place.store);
    place.clock.nowMs += 8 * hourMs;
    await run(hourMs);
    place.clock.nowMs -= 8 * hourMs;
    await run(2 * hourMs);
    expect(await keys(place.store)).toEqual(before);
    place.clock.nowMs += 8 * hourMs;
    await run(2 * hourMs);
    expect(await keys(place.store)).toEqual([]);
    await close(server);
  });
});

async function* oneChunk(text: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(text);
}
