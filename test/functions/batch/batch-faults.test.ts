/**
 * Every point at which the store or the process can fail: over a whole batch life, from the upload to the end, the n-th
 * call to a real store fails, hangs or is the last one of its process, for all n.
 */
import { join } from "node:path";
import { CreateBucketCommand } from "@aws-sdk/client-s3";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";

import { isFinal } from "../../../functions/batch/batch-record.ts";
import type { BatchObject, FinalStatus } from "../../../functions/batch/batch-record.ts";
import { BatchRecords } from "../../../functions/batch/batch-records.ts";
import type { Batches } from "../../../functions/batch/batches.ts";
import { DamageLog } from "../../../functions/batch/damaged-records.ts";
import { createFolderResultLogs } from "../../../functions/batch/folder-result-logs.ts";
import type { JobQueue } from "../../../functions/batch/job-queue.ts";
import { createLocalJobQueue } from "../../../functions/batch/local-job-queue.ts";
import { createRedisJobQueue } from "../../../functions/batch/redis-job-queue.ts";
import type { ResultLine } from "../../../functions/batch/result-line.ts";
import { createSegmentedResultLogs } from "../../../functions/batch/segmented-result-logs.ts";
import { StoredFiles } from "../../../functions/batch/stored-files.ts";
import { createLogger } from "../../../functions/logger.ts";
import { createFolderObjectStore } from "../../../functions/storage/folder-object-store.ts";
import type { ObjectStore } from "../../../functions/storage/object-store.ts";
import { createS3ObjectStore } from "../../../functions/storage/s3-object-store.ts";
import { createBatchServer, dayMs, queueOptions, startMs, tenant } from "../../support/batch-server.ts";
import { faults, FaultyProcess, logsWithFaults, withFaults } from "../../support/faulty-store.ts";
import type { Fault } from "../../support/faulty-store.ts";
import { startRedisServer } from "../../support/redis-server.ts";
import type { RedisServer } from "../../support/redis-server.ts";
import { startS3Server } from "../../support/s3-server.ts";
import type { S3Server } from "../../support/s3-server.ts";
import { startTcpProxy } from "../../support/tcp-proxy.ts";
import type { TcpProxy } from "../../support/tcp-proxy.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";

/** Lives under way together. */
const NUM_LIVES = 16;

vi.setConfig({ testTimeout: 300_000 });

let folder: TemporaryFolder;
let redis: RedisServer;
let s3: S3Server;
let numWorlds = 0;
const silent = createLogger({ level: "error", write() {} });

beforeAll(async () => {
  folder = await createTemporaryFolder();
  [redis, s3] = await Promise.all([startRedisServer(), startS3Server()]);
  await s3.client.send(new CreateBucketCommand({ Bucket: "batches" }));
});

afterAll(async () => {
  await Promise.all([redis.kill(), s3.stop()]);
  await folder[Symbol.asyncDispose]();
});

type StoreKind = "a folder" | "a folder, results in segments" | "S3";

/** What survives a process. */
interface World {
  readonly name: string;
  readonly kind: StoreKind;
  readonly hasRedis: boolean;
  /** How the batch is to end. */
  readonly ending: FinalStatus;
  readonly clock: { nowMs: number };
  /** How many endings were written: only then is it worth a look whether all have ended. */
  readonly endings: { num: number };
}

function openStore({ name, kind, endings }: World): ObjectStore {
  const timeouts = { callMs: 60_000, bodyMs: 60_000 };
  const store =
    kind === "S3"
      ? createS3ObjectStore({ client: s3.createClient(), bucket: "batches", prefix: name, timeouts })
      : createFolderObjectStore(join(folder.path, name));
  return {
    ...store,
    async write(key, chunks) {
      const numBytes = await store.write(key, chunks);
      if (key.startsWith("endings/")) endings.num += 1;
      return numBytes;
    },
  };
}

/** The last line is one that the service refuses; the one before it is answered last where the batch ends early. */
const lines = [
  { custom_id: "a", body: { prompt: "a" } },
  { custom_id: "b", body: { prompt: "b" } },
  { custom_id: "refused", body: { prompt: "c", max_tokens: -1 } },
  { custom_id: "slow", body: { prompt: "slow" } },
  { custom_id: "after", body: { prompt: "d" } },
];
const NUM_ACCEPTED = 4;
const customIds = lines.map(({ custom_id: customId }) => customId);

interface Server {
  readonly batches: Batches;
  readonly process: FaultyProcess;
  readonly numAnswered: () => number;
  /** Resolves when the slow line is being answered, which waits until `proceed`. */
  readonly isSlow: Promise<void>;
  readonly proceed: () => void;
  readonly dispose: () => Promise<void>;
}

async function startServer(world: World, process: FaultyProcess): Promise<Server> {
  const [isSlow, proceeding] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const store = withFaults(openStore(world), process);
  const logs =
    world.kind === "a folder"
      ? logsWithFaults(createFolderResultLogs(join(folder.path, world.name, "results"), silent), process)
      : createSegmentedResultLogs({
          store,
          flushMs: 5,
          retryMs: { first: 5, most: 10 },
          maxNumAttempts: 3,
          logger: silent,
        });
  const { queue, proxy } = await openQueue(world);
  const { batches, engine, stop } = createBatchServer({
    store,
    logs,
    queue,
    script(prompt) {
      if (prompt !== "slow") return ["x"];
      isSlow.resolve();
      return [world.ending === "completed" ? Promise.resolve() : proceeding.promise, "x"];
    },
    clock: world.clock,
    // So that the slow line stands between those before it and the one behind it.
    numTogether: 1,
    // S3 takes long for each call, and ticks are many.
    tickMs: world.kind === "S3" ? 500 : 20,
    lookMs: world.kind === "S3" ? 1000 : 100,
  });
  // As a server does that starts while the store is away.
  const started = batches.start().catch(() => {});
  void process.died.then(() => proxy?.cut());
  return {
    batches,
    process,
    numAnswered: () => engine.requests.length,
    isSlow: isSlow.promise,
    proceed: proceeding.resolve,
    async dispose() {
      process.bury();
      proceeding.resolve();
      await started;
      await stop();
      await batches.close();
      await proxy?.[Symbol.asyncDispose]();
    },
  };
}

async function openQueue(world: World): Promise<{ readonly queue: JobQueue; readonly proxy: TcpProxy | null }> {
  const options = { ...queueOptions, logger: silent };
  if (!world.hasRedis) {
    return { queue: createLocalJobQueue({ ...options, tryLock: async () => ({ release() {} }) }), proxy: null };
  }
  const proxy = await startTcpProxy(redis.port);
  const url = `redis://127.0.0.1:${proxy.port}`;
  return { queue: createRedisJobQueue({ ...options, url, keyPrefix: "test", name: world.name, lockMs: 400 }), proxy };
}

/** What a client does that wants its batch: it repeats what fails. Never resolves when the server dies. */
async function persistently<Value>({ process }: Server, work: () => Promise<Value | null>): Promise<Value> {
  for (;;) {
    const value = await work().catch(() => null);
    if (process.isDead) return new Promise(() => {});
    if (value !== null) return value;
  }
}

async function queueBatch(server: Server): Promise<void> {
  const { files } = server.batches;
  const text = lines.map((line) => JSON.stringify({ ...line, method: "POST", url: "/v1/completions" })).join("\n");
  const inputFileId = await persistently(server, async () => {
    const id = files.newId();
    const numBytes = await files.receive(id, ofText(text));
    return (await files.publish(tenant, { id, numBytes, filename: "in.jsonl", purpose: "batch" })).id;
  });
  await persistently(server, async () => {
    const created = await server.batches.create(tenant, { inputFileId, endpoint: "/v1/completions", metadata: null });
    return created.kind === "created" ? created : null;
  });
}

async function* ofText(text: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(text);
}

/** What clients do: they queue a batch, and end it early once its slow line is under way. */
async function act(world: World, server: Server, observer: Observer, isOver: Promise<void>): Promise<void> {
  if ((await observer.list()).length === 0) await queueBatch(server);
  if (world.ending === "completed") return;
  await Promise.race([server.isSlow, server.process.died, isOver]);
  if (world.ending === "expired") world.clock.nowMs = startMs + dayMs;
  else {
    for (const { id } of await observer.list()) await persistently(server, () => server.batches.cancel(tenant, id));
  }
  server.proceed();
}

/** Sees the store as it is. */
class Observer {
  readonly store: ObjectStore;
  readonly #records: BatchRecords;
  readonly #files: StoredFiles;

  constructor(world: World) {
    this.store = openStore(world);
    const damage = new DamageLog(silent);
    this.#records = new BatchRecords({ store: this.store, model: "tiny", damage });
    this.#files = new StoredFiles({ store: this.store, now: () => startMs, damage });
  }

  async list(): Promise<readonly BatchObject[]> {
    return (await this.#records.list(tenant, { limit: 100, after: null, order: "asc" })).items;
  }

  async areAllEnded(): Promise<boolean> {
    const batches = await this.list();
    return batches.length > 0 && batches.every(({ status }) => isFinal(status));
  }

  async results(fileId: string | null): Promise<ResultLine[]> {
    const chunks: Uint8Array[] = [];
    for await (const chunk of (await this.#files.read(tenant, fileId ?? ""))?.chunks ?? []) chunks.push(chunk);
    const texts = Buffer.concat(chunks).toString().split("\n").slice(0, -1);
    return texts.map((text) => JSON.parse(text) as ResultLine);
  }
}

interface Life extends Pick<World, "kind" | "hasRedis" | "ending"> {
  readonly fault: Fault;
}

/** A batch's life with one fault, and what is there at its end. Resolves to whether the fault came. */
async function live(at: number, { fault, ...life }: Life): Promise<boolean> {
  const world: World = { ...life, name: `world-${numWorlds++}`, clock: { nowMs: startMs }, endings: { num: 0 } };
  const observer = new Observer(world);
  const process = new FaultyProcess(at, fault);
  const servers = [await startServer(world, process)];
  const where = `${fault} at call ${at}`;
  let numSeen = 0;
  const areAllEnded = async (): Promise<boolean> => {
    if (world.endings.num === numSeen) return false;
    numSeen = world.endings.num;
    return observer.areAllEnded();
  };
  const waitForEnd = async (): Promise<void> => {
    await expect.poll(areAllEnded, { message: where, interval: 10, timeout: 200_000 }).toBe(true);
  };
  const isOver = waitForEnd();
  // A platform starts another server whenever one dies.
  const replace = async (): Promise<void> => {
    await process.died;
    servers.push(await startServer(world, new FaultyProcess(Infinity, fault)));
    await act(world, servers[1], observer, isOver);
  };
  const replacing = replace();
  replacing.catch(() => {});
  await Promise.race([act(world, servers[0], observer, isOver), process.died]);
  await isOver;
  for (const batch of await observer.list()) await checkEnded(batch, world, observer, where);
  await checkRest(world, observer, where);
  // On a slow machine, workers lose their locks in Redis: then two answer the same lines.
  const isCounted = world.ending === "completed" && !world.hasRedis && (fault === "refused" || fault === "lost answer");
  const numAnswered = servers[0].numAnswered() - NUM_ACCEPTED * (await observer.list()).length;
  // In a folder, one line is lost with the write that fails; gathered lines are written again.
  const most = world.kind === "a folder" ? 1 : 0;
  expect(isCounted ? numAnswered : 0, where).toBeLessThanOrEqual(most);
  if (process.isDead) await replacing;
  await Promise.all(servers.map((server) => server.dispose()));
  await observer.store.close();
  return process.isHit;
}

async function checkEnded(batch: BatchObject, world: World, observer: Observer, where: string): Promise<void> {
  const output = await observer.results(batch.output_file_id);
  const errors = await observer.results(batch.error_file_id);
  const ids = [...output, ...errors].map((line) => line.custom_id ?? "none");
  expect(new Set(ids).size, where).toBe(ids.length);
  expect(
    output.every(({ response }) => response?.status_code === 200),
    where,
  ).toBe(true);
  const refused = errors.filter(({ response }) => response !== null);
  const counts = { total: batch.request_counts.total, completed: output.length, failed: refused.length };
  expect(batch, where).toMatchObject({ errors: null, request_counts: counts });
  // A batch that is cancelled or too old while its last result is stored completes.
  expect(["completed", world.ending], where).toContain(batch.status);
  // The lines of a batch that expires before it is begun are not known.
  const hasAllLines = batch.status === "completed" || (batch.status === "expired" && batch.in_progress_at !== null);
  if (hasAllLines) expect(ids.toSorted(), where).toEqual(customIds.toSorted());
}

/** Nothing is left over, but for what a store did late. */
async function checkRest({ kind }: World, { store }: Observer, where: string): Promise<void> {
  await expect.poll(() => store.list("unfinished/"), { message: where }).toEqual([]);
  if (!where.startsWith("hangs") || kind === "a folder") {
    await expect.poll(() => store.list("results/"), { message: where }).toEqual([]);
  }
}

/** All calls of a life, until there is none that the fault could meet. Resolves to their number. */
async function liveAll(liveAt: (at: number) => Promise<boolean>): Promise<number> {
  for (let first = 1; ; first += NUM_LIVES) {
    const numbers = Array.from({ length: NUM_LIVES }, (_, index) => first + index);
    const areHit = await Promise.all(numbers.map(liveAt));
    if (!areHit.some(Boolean)) return first - 1;
  }
}

/** More than a life without any fault makes in the shortest way. */
const MIN_NUM_CALLS = 24;

describe.for(["a folder", "a folder, results in segments"] as const)("on %s", (kind) => {
  describe.for([false, true])("with Redis: %s", (hasRedis) => {
    test.for(faults)("a batch completes with every result when any call %s", async (fault) => {
      const numCalls = await liveAll((at) => live(at, { kind, hasRedis, ending: "completed", fault }));
      expect(numCalls).toBeGreaterThan(MIN_NUM_CALLS);
    });
  });
});

// Every call meets a fault here too, but not every call every fault, with and without Redis: that would take minutes.
test("on S3 a batch completes with every result when any call meets a fault", async () => {
  const numCalls = await liveAll((at) => {
    const hasRedis = Math.floor(at / faults.length) % 2 === 1;
    return live(at, { kind: "S3", hasRedis, ending: "completed", fault: faults[at % faults.length] });
  });
  expect(numCalls).toBeGreaterThan(MIN_NUM_CALLS);
});

/** Two servers that both take the batch to be theirs, of which one makes a call so late that the other overtakes it. */
async function liveTogether(at: number, kind: StoreKind): Promise<boolean> {
  const world: World = {
    name: `world-${numWorlds++}`,
    kind,
    hasRedis: false,
    ending: "completed",
    clock: { nowMs: startMs },
    endings: { num: 0 },
  };
  const observer = new Observer(world);
  const slow = new FaultyProcess(at, "is late");
  const servers = [await startServer(world, slow)];
  await queueBatch(servers[0]);
  servers.push(await startServer(world, new FaultyProcess(Infinity, "is late")));
  const where = `late at call ${at}`;
  await expect.poll(() => observer.areAllEnded(), { message: where, timeout: 200_000 }).toBe(true);
  await expect.poll(() => observer.store.list("unfinished/"), { message: where }).toEqual([]);
  const stopped = servers.map(({ batches }) => batches.stop());
  await Promise.all(stopped);
  for (const batch of await observer.list()) await checkEnded(batch, world, observer, where);
  expect(await observer.store.list("results/"), where).toEqual([]);
  await Promise.all(servers.map((server) => server.dispose()));
  await observer.store.close();
  return slow.isHit;
}

test.for(["a folder", "a folder, results in segments"] as const)(
  "a batch that two servers work on together completes with every result, on %s",
  async (kind) => {
    expect(await liveAll((at) => liveTogether(at, kind))).toBeGreaterThan(0);
  },
);

describe.for(["expired", "cancelled"] as const)("a batch that is %s has no result twice", (ending) => {
  test.for(faults)("when any call %s", async (fault) => {
    const life = { kind: "a folder, results in segments", hasRedis: false, ending, fault } as const;
    expect(await liveAll((at) => live(at, life))).toBeGreaterThan(0);
  });
});
