/** The lives of batches over real stores, in which one call to the store meets a fault. */
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import { isFinal } from "../../../functions/batch/batch-record.ts";
import type { BatchObject, FinalStatus } from "../../../functions/batch/batch-record.ts";
import { BatchRecords } from "../../../functions/batch/batch-records.ts";
import type { Batches } from "../../../functions/batch/batches.ts";
import { DamageLog } from "../../../functions/batch/damaged-records.ts";
import { createFolderResultLogs } from "../../../functions/batch/folder-result-logs.ts";
import type { JobQueue } from "../../../functions/batch/job-queue.ts";
import { createLocalJobQueue } from "../../../functions/batch/local-job-queue.ts";
import { createRedisJobQueue } from "../../../functions/batch/redis-job-queue.ts";
import { isSuccess } from "../../../functions/batch/result-line.ts";
import type { ResultLine } from "../../../functions/batch/result-line.ts";
import { createSegmentedResultLogs } from "../../../functions/batch/segmented-result-logs.ts";
import { StoredFiles } from "../../../functions/batch/stored-files.ts";
import { createLogger } from "../../../functions/logger.ts";
import { createFolderObjectStore } from "../../../functions/storage/folder-object-store.ts";
import type { ObjectStore } from "../../../functions/storage/object-store.ts";
import { createS3ObjectStore } from "../../../functions/storage/s3-object-store.ts";
import type { RedisServer } from "../../support/servers/redis-server.ts";
import type { S3Server } from "../../support/servers/s3-server.ts";
import { startTcpProxy } from "../../support/servers/tcp-proxy.ts";
import type { TcpProxy } from "../../support/servers/tcp-proxy.ts";
import { createBatchServer, dayMs, queueOptions, startMs, tenant } from "../../support/service/batch-server.ts";
import { FaultyProcess, logsWithFaults, withFaults } from "../../support/service/faulty-store.ts";
import type { Fault } from "../../support/service/faulty-store.ts";

const LOOK_MS = 10;
/** More than three minutes, after which a batch will not end any more. */
const MAX_NUM_LOOKS = 20_000;

const silent = createLogger({ level: "error", write() {} });

/** The places of all worlds. */
export interface Places {
  readonly folder: string;
  readonly redis: RedisServer;
  /** With a bucket named batches. */
  readonly s3: S3Server;
}

export type StoreKind = "a folder" | "a folder, results in segments" | "S3";

export interface Life {
  readonly kind: StoreKind;
  readonly hasRedis: boolean;
  /** The expected ending of the batch. */
  readonly ending: FinalStatus;
}

/** The state that survives a process. */
interface World extends Life {
  readonly places: Places;
  readonly name: string;
  readonly clock: { nowMs: number };
  /** Number of endings written: only after a new one can all have ended. */
  readonly endings: { num: number };
}

function openStore({ name, kind, endings, places }: World): ObjectStore {
  const timeouts = { callMs: 60_000, bodyMs: 60_000 };
  const store =
    kind === "S3"
      ? createS3ObjectStore({ client: places.s3.createClient(), bucket: "batches", prefix: name, timeouts })
      : createFolderObjectStore(join(places.folder, name));
  return {
    ...store,
    async write(key, chunks) {
      const numBytes = await store.write(key, chunks);
      if (key.startsWith("endings/")) endings.num += 1;
      return numBytes;
    },
  };
}

/** The service rejects the last line. The one before it is answered last if the batch ends early. */
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
      ? logsWithFaults(createFolderResultLogs(join(world.places.folder, world.name, "results"), silent), process)
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
    // So that the slow line is between the earlier lines and the last one.
    numTogether: 1,
    // Each call to S3 takes long, and there are many ticks.
    tickMs: world.kind === "S3" ? 500 : 20,
    lookMs: world.kind === "S3" ? 1000 : 100,
  });
  // Like a server that starts while the store is unreachable.
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
  const proxy = await startTcpProxy(world.places.redis.port);
  const url = `redis://127.0.0.1:${proxy.port}`;
  return { queue: createRedisJobQueue({ ...options, url, keyPrefix: "test", name: world.name, lockMs: 400 }), proxy };
}

/** Behaves like a client that wants its batch: repeats failed calls. Never resolves when the server dies. */
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

/** The clients' actions: they queue a batch, and end it early once its slow line is in progress. */
async function act(world: World, server: Server, observer: Observer, isOver: Promise<boolean>): Promise<void> {
  if ((await observer.list()).length === 0) await queueBatch(server);
  if (world.ending === "completed") return;
  await Promise.race([server.isSlow, server.process.died, isOver]);
  if (world.ending === "expired") world.clock.nowMs = startMs + dayMs;
  else {
    for (const { id } of await observer.list()) await persistently(server, () => server.batches.cancel(tenant, id));
  }
  server.proceed();
}

/** Sees the store without faults. */
class Observer {
  readonly store: ObjectStore;
  readonly #records: BatchRecords;
  readonly #files: StoredFiles;
  readonly #world: World;

  constructor(world: World) {
    this.#world = world;
    this.store = openStore(world);
    const damage = new DamageLog(silent);
    this.#records = new BatchRecords({ store: this.store, model: "tiny", damage });
    this.#files = new StoredFiles({ store: this.store, now: () => startMs, retentionMs: null, damage });
  }

  async list(): Promise<readonly BatchObject[]> {
    return (await this.#records.list(tenant, { limit: 100, after: null, order: "asc" })).items;
  }

  /**
   * Whether all batches end before a machine of any speed would have ended them. A batch begins with its marker. Where
   * the write of the marker hangs, the client creates a second batch, and the first begins when the store does the write.
   */
  async untilAllEnded(process: FaultyProcess): Promise<boolean> {
    let numSeen = 0;
    return until(async () => {
      if (process.isLate || this.#world.endings.num === numSeen) return false;
      numSeen = this.#world.endings.num;
      const begun = await this.#records.listUnfinished();
      const haveEnded = await Promise.all(begun.map((jobId) => this.#records.hasEnded(jobId)));
      const batches = await this.list();
      return batches.length > 0 && haveEnded.every(Boolean) && batches.every(({ status }) => isFinal(status));
    });
  }

  /** The problems of the batches, all of which have ended. */
  async check({ ending }: World): Promise<string[]> {
    const problems: string[] = [];
    for (const batch of await this.list()) {
      const output = await this.#results(batch.output_file_id);
      const errors = await this.#results(batch.error_file_id);
      const answered = errors.filter(({ response }) => response !== null);
      const ids = [...output, ...errors].map((line) => line.custom_id ?? "none").toSorted();
      const claim = (isTrue: boolean, problem: string): unknown => isTrue || problems.push(problem);
      // A batch that is cancelled or expires while its last result is being stored completes.
      claim(batch.status === "completed" || batch.status === ending, `The batch is ${batch.status}.`);
      claim(batch.errors === null, `The batch has errors: ${JSON.stringify(batch.errors)}.`);
      claim(new Set(ids).size === ids.length, `Lines have several results: ${ids.join()}.`);
      claim(output.every(isSuccess), "An error is among the answers.");
      claim(!answered.some(isSuccess), "An answer is among the errors.");
      const { completed, failed } = batch.request_counts;
      const counts = `${completed} completed and ${failed} failed`;
      const isCounted = completed === output.length && failed === answered.length;
      claim(isCounted, `The batch counts ${counts}, the files have ${output.length} and ${answered.length}.`);
      // The lines of a batch that expires before it starts are not known.
      const hasAllLines = batch.status === "completed" || (batch.status === "expired" && batch.in_progress_at !== null);
      const isWhole = ids.join() === customIds.toSorted().join();
      claim(isWhole || !hasAllLines, `The batch is ${batch.status} with the lines ${ids.join()}.`);
    }
    return problems;
  }

  async checkNothingLeft(): Promise<string[]> {
    const left = async (): Promise<string[]> => [
      ...(await this.store.list("unfinished/")),
      ...(await this.store.list("results/")),
    ];
    return (await until(async () => (await left()).length === 0)) ? [] : [`Left over: ${(await left()).join()}.`];
  }

  async #results(fileId: string | null): Promise<ResultLine[]> {
    const chunks: Uint8Array[] = [];
    for await (const chunk of (await this.#files.read(tenant, fileId ?? ""))?.chunks ?? []) chunks.push(chunk);
    const texts = Buffer.concat(chunks).toString().split("\n").slice(0, -1);
    return texts.map((text) => JSON.parse(text) as ResultLine);
  }
}

/** Whether it becomes true within a time that is enough for a slow machine. */
async function until(isTrue: () => Promise<boolean>): Promise<boolean> {
  for (let numLooks = 0; numLooks < MAX_NUM_LOOKS; numLooks++) {
    if (await isTrue()) return true;
    await sleep(LOOK_MS);
  }
  return false;
}

/** The result of a batch's life with one fault, at the call with this number. */
export interface LifeResult {
  /** Whether the life had that many calls. */
  readonly isHit: boolean;
  /** Problems at the end of the life; empty if there are none. */
  readonly problems: readonly string[];
}

let numWorlds = 0;

function createWorld(places: Places, life: Life): World {
  return { ...life, places, name: `world-${numWorlds++}`, clock: { nowMs: startMs }, endings: { num: 0 } };
}

/** One server, which another one replaces when it dies. */
export async function live(places: Places, life: Life, fault: Fault, at: number): Promise<LifeResult> {
  const world = createWorld(places, life);
  const observer = new Observer(world);
  const process = new FaultyProcess(at, fault);
  const servers = [await startServer(world, process)];
  const isOver = observer.untilAllEnded(process);
  const replace = async (): Promise<void> => {
    await process.died;
    const next = await startServer(world, new FaultyProcess(Infinity, fault));
    servers.push(next);
    await act(world, next, observer, isOver);
  };
  const replacing = replace();
  replacing.catch(() => {});
  await Promise.race([act(world, servers[0]!, observer, isOver), process.died]);
  const problems = (await isOver) ? await observer.check(world) : ["A batch did not end."];
  // The late effect of a hanging call may be left over.
  if (fault !== "hangs") problems.push(...(await observer.checkNothingLeft()));
  // On a slow machine, workers lose their locks in Redis, and two answer the same lines.
  if (life.ending === "completed" && !life.hasRedis && (fault === "refused" || fault === "lost answer")) {
    const numAgain = servers[0]!.numAnswered() - NUM_ACCEPTED * (await observer.list()).length;
    // In a folder, one line is lost with the failing write; collected lines are written again.
    const most = life.kind === "a folder" ? 1 : 0;
    if (numAgain > most) problems.push(`${numAgain} lines were answered again.`);
  }
  if (process.isDead) await replacing;
  await Promise.all(servers.map((server) => server.dispose()));
  await observer.store.close();
  return { isHit: process.isHit, problems: problems.map((problem) => `${fault} at call ${at}: ${problem}`) };
}

/** Two servers that both own the batch, one of which makes a call so late that the other overtakes it. */
export async function liveTogether(places: Places, kind: StoreKind, at: number): Promise<LifeResult> {
  const world = createWorld(places, { kind, hasRedis: false, ending: "completed" });
  const observer = new Observer(world);
  const late = new FaultyProcess(at, "is late");
  const servers = [await startServer(world, late)];
  await queueBatch(servers[0]!);
  servers.push(await startServer(world, new FaultyProcess(Infinity, "is late")));
  const isOver = await observer.untilAllEnded(late);
  await Promise.all(servers.map(({ batches }) => batches.stop()));
  const problems = isOver ? await observer.check(world) : ["A batch did not end."];
  problems.push(...(await observer.checkNothingLeft()));
  await Promise.all(servers.map((server) => server.dispose()));
  await observer.store.close();
  return { isHit: late.isHit, problems: problems.map((problem) => `late at call ${at}: ${problem}`) };
}
