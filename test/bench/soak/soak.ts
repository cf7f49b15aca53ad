/**
 * The service under a steady mixed load for minutes or hours, as `fovea serve` in a process of its own with Redis. The
 * clients are in this process. Between phases of load the service rests and returns its memory; then its memory by kind,
 * the heap of every thread after a collection, sequences, open files, threads and connections are counted. The first
 * quarter warms up and fills caches. What the last quarter has more of than the second is a leak.
 */
import { setTimeout as delay } from "node:timers/promises";

import { IDLE_MS } from "../../../functions/idle-memory.ts";
import { createRandom, randomBelow } from "../../gpu/numbers.ts";
import { freePort } from "../../support/servers/free-port.ts";
import { startRedisServer } from "../../support/servers/redis-server.ts";
import type { RedisServer } from "../../support/servers/redis-server.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { limitFigure, plainFigure, reportProgress } from "../measure.ts";
import type { Figure } from "../measure.ts";
import { startServerProcess, untilReady } from "../server-process.ts";
import type { ServerProcess } from "../server-process.ts";
import { InspectedIsolates } from "./inspected-isolates.ts";
import { loads, sendLastRequests } from "./loads.ts";
import type { LoadName } from "./loads.ts";
import { countConnections, countOpenFiles, readProcessMemory } from "./process-resources.ts";

const NUM_SAMPLES = 12;
const NUM_CLIENTS = 12;
/** Longer than the service waits until it returns its memory (`IDLE_MS`), also on a busy machine. */
const REST_MS = IDLE_MS + 20_000;
const MIN_PHASE_MS = 1000;
const NUM_READINGS = 10;
const READING_INTERVAL_MS = 300;
const MAX_GROWTH = 1.01;
const MEBIBYTE = 2 ** 20;

/** Values by name. Those of heaps are in MiB, by thread. */
type Sample = ReadonlyMap<string, number>;

/** What must be zero at rest. */
const leftNames = new Set(["sequences", "share of the KV cache"]);

export interface SoakOptions {
  /** Of load and rests together. */
  readonly minutes: number;
  /** Kinds of requests that clients choose from. */
  readonly loadNames: readonly LoadName[];
}

export async function benchSoak({ minutes, loadNames }: SoakOptions): Promise<Figure[]> {
  await using folder = await createTemporaryFolder();
  const redis = await startRedisServer();
  try {
    const inspectorPort = await freePort();
    await using server = await startServerProcess(
      {
        REDIS_URL: redis.url,
        BATCH_STORE: folder.path,
        // The second copy gets work when more than eight sequences run.
        DATA_PARALLEL_SIZE: "2",
        MAX_NUM_SEQS: "8",
        MAX_MODEL_LEN: "1024",
        // Of a copy: less than eight long sequences take, so that some are preempted.
        KV_CACHE_MEMORY_BYTES: "4MiB",
        // Full before the second quarter: a picture takes 50 KiB.
        MM_PROCESSOR_CACHE_GB: "0.001",
        // As in the images.
        MALLOC_ARENA_MAX: "2",
      },
      [`--inspect=127.0.0.1:${inspectorPort}`],
    );
    await untilReady(server);
    using isolates = await InspectedIsolates.connect(inspectorPort);
    const clients = Array.from({ length: NUM_CLIENTS }, (_, index) => createRandom(index));
    const numDone = new Map<LoadName, number>();
    const runClient = async (random: () => number, endMs: number): Promise<void> => {
      while (performance.now() < endMs) {
        const name = loadNames[randomBelow(random, loadNames.length)]!;
        try {
          await loads[name](server.url, random);
          numDone.set(name, (numDone.get(name) ?? 0) + 1);
        } catch (error) {
          numFailed++;
          reportProgress(`one of ${name} failed: ${String(error)}`);
        }
      }
    };
    let numFailed = 0;
    const samples: Sample[] = [];
    const phaseMs = Math.max(MIN_PHASE_MS, (minutes * 60_000) / NUM_SAMPLES - REST_MS);
    for (let index = 0; index < NUM_SAMPLES; index++) {
      const endMs = performance.now() + phaseMs;
      await Promise.all(clients.map((random) => runClient(random, endMs)));
      await sendLastRequests(server.url);
      await delay(REST_MS);
      const sample = new Map([
        ["minutes", (performance.now() - server.startedAt) / 60_000],
        ...(await takeSample(server, isolates, redis)),
      ]);
      samples.push(sample);
      reportProgress(`${index + 1}/${NUM_SAMPLES}: ${describe(sample)}`);
    }
    reportProgress([...numDone].map(([name, count]) => `${count} ${name}`).join(", "));
    return [...toFigures(samples), failedFigure(numFailed), ...trends(samples)];
  } finally {
    await redis.kill();
  }
}

async function takeSample(
  { url, pid }: ServerProcess,
  isolates: InspectedIsolates,
  redis: RedisServer,
): Promise<Sample> {
  const sample = new Map<string, number>();
  // Before the heaps are measured, which collects garbage.
  const { anonymousBytes, fileBytes, sharedBytes, numThreads } = await readProcessMemory(pid);
  sample.set("memory in all, MiB", (anonymousBytes + fileBytes + sharedBytes) / MEBIBYTE);
  sample.set("memory without files, MiB", anonymousBytes / MEBIBYTE);
  sample.set("mapped files, MiB", (fileBytes + sharedBytes) / MEBIBYTE);
  const heaps = await isolates.measure();
  // The threads of a pool have one name. The largest counts, because their number changes.
  for (const { name, usedBytes } of heaps) {
    const key = `heap of ${name}, MiB`;
    sample.set(key, Math.max(sample.get(key) ?? 0, usedBytes / MEBIBYTE));
  }
  sample.set("timers and other resources", await countResources(isolates));
  sample.set("threads", numThreads);
  const numOfClients = await countConnections(pid, Number(new URL(url).port));
  const openFiles = await countOpenFiles(pid);
  // Clients keep connections open and use them again.
  sample.set(
    "open files in all",
    openFiles.values().reduce((sum, count) => sum + count, -numOfClients),
  );
  for (const [kind, count] of openFiles) sample.set(`open: ${kind}`, kind === "socket" ? count - numOfClients : count);
  sample.set("connections to Redis", redis.command("client", "list").split("\n").length);
  const metrics = await (await fetch(`${url}/metrics`)).text();
  const metric = (name: string): number => Number(new RegExp(`^${name}(?:{.*})? (.*)$`, "m").exec(metrics)![1]);
  sample.set("sequences", metric("vllm:num_requests_running") + metric("vllm:num_requests_waiting"));
  sample.set("share of the KV cache", metric("vllm:kv_cache_usage_perc"));
  sample.set("preempted", metric("vllm:num_preemptions_total"));
  return sample;
}

/**
 * The fewest of several readings, because periodic work starts timers of its own for a moment. Sockets are counted as
 * files.
 */
async function countResources(isolates: InspectedIsolates): Promise<number> {
  const expression = 'process.getActiveResourcesInfo().filter((kind) => kind !== "TCPSocketWrap").length';
  let fewest = Infinity;
  for (let reading = 0; reading < NUM_READINGS; reading++) {
    fewest = Math.min(fewest, (await isolates.evaluate(expression)) as number);
    await delay(READING_INTERVAL_MS);
  }
  return fewest;
}

/**
 * The growth of each value: the smallest of the last quarter over that of the second, because what a leak holds is never
 * given back. Sequences and blocks: what is left at the end. Idle threads end, so not every sample has their heaps.
 */
function toFigures(samples: readonly Sample[]): Figure[] {
  const quarter = NUM_SAMPLES / 4;
  const names = new Set(samples.flatMap((sample) => [...sample.keys()]));
  return [...names].flatMap((name) => {
    if (name === "preempted" || name === "minutes") return [];
    if (leftNames.has(name)) {
      const values = [samples.at(-1)!.get(name)!];
      return [limitFigure({ name: `${name} at rest`, unit: "", values, comparison: "<=", limit: 0 })];
    }
    const least = (part: readonly Sample[]): number =>
      Math.min(...part.flatMap((sample) => (sample.has(name) ? [sample.get(name)!] : [])));
    const early = least(samples.slice(quarter, 2 * quarter));
    const late = least(samples.slice(-quarter));
    if (!Number.isFinite(early) || !Number.isFinite(late)) return [];
    return [
      limitFigure({
        name: `${name}: ${brief(early)}, then ${brief(late)}`,
        unit: "times",
        values: [early === late ? 1 : late / early],
        comparison: "<=",
        limit: MAX_GROWTH,
      }),
    ];
  });
}

function failedFigure(numFailed: number): Figure {
  return limitFigure({ name: "failed requests", unit: "", values: [numFailed], comparison: "<=", limit: 0 });
}

/** Slopes of the lines through all samples after the first quarter, which fills caches. A sleeping thread has no heap. */
function trends(samples: readonly Sample[]): Figure[] {
  return ["memory without files, MiB", "heap of main, MiB", "heap of fovea-engine, MiB"].map((name) => {
    const points = samples
      .slice(NUM_SAMPLES / 4)
      .filter((sample) => sample.has(name))
      .map((sample) => [sample.get("minutes")! / 60, sample.get(name)!] as const);
    const mean = (axis: 0 | 1): number => points.reduce((sum, point) => sum + point[axis], 0) / points.length;
    const [meanHours, meanValue] = [mean(0), mean(1)];
    const covariance = points.reduce((sum, [hours, value]) => sum + (hours - meanHours) * (value - meanValue), 0);
    const variance = points.reduce((sum, [hours]) => sum + (hours - meanHours) ** 2, 0);
    return plainFigure(`trend of ${name}`, "MiB/h", [covariance / variance]);
  });
}

function describe(sample: Sample): string {
  return [...sample].map(([name, value]) => `${name} ${brief(value)}`).join("; ");
}

function brief(value: number): number {
  return Number(value.toFixed(2));
}
