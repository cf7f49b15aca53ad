/** Batches over a real store and a scripted engine, as one server process. */
import { defaultVideoLimits } from "../../../engine/contract/default-limits.ts";
import { Batches } from "../../../functions/batch/batches.ts";
import type { JobQueue } from "../../../functions/batch/job-queue.ts";
import { createLocalJobQueue } from "../../../functions/batch/local-job-queue.ts";
import type { ResultLine } from "../../../functions/batch/result-line.ts";
import type { ResultLogs } from "../../../functions/batch/result-log.ts";
import { WorkWindow } from "../../../functions/batch/work-window.ts";
import { createLogger } from "../../../functions/logger.ts";
import { createMetrics } from "../../../functions/metrics.ts";
import type { Metrics } from "../../../functions/metrics.ts";
import { Service } from "../../../functions/service.ts";
import type { ObjectStore } from "../../../functions/storage/object-store.ts";
import { createScriptedEngine } from "../engine/scripted-engine.ts";
import type { Script, ScriptedEngine } from "../engine/scripted-engine.ts";

export const tenant = "";
export const startMs = 1_800_000_000_000;
export const dayMs = 24 * 60 * 60 * 1000;

export interface BatchServerOptions {
  readonly store: ObjectStore;
  readonly logs: ResultLogs;
  /** Default: a queue of this process only. */
  readonly queue?: JobQueue;
  /** Default: an immediate answer. */
  readonly script?: (prompt: string) => Script;
  readonly clock?: { nowMs: number };
  /** Lines answered together; default 2. */
  readonly numTogether?: number;
  /** Of files and ended batches; default: forever. */
  readonly retentionMs?: number;
  /** Default: the other clock, which then is never set. */
  readonly steadyNow?: () => number;
  readonly tickMs?: number;
  readonly lookMs?: number;
}

export interface BatchServer {
  readonly batches: Batches;
  readonly engine: ScriptedEngine;
  readonly clock: { nowMs: number };
  readonly service: Service;
  /** Those of all servers of the process. */
  readonly metrics: Metrics;
  /** All log lines so far. */
  readonly log: () => string;
  /** Uploads a file of lines and queues it. Resolves to the id of the batch. */
  readonly queueLines: (lines: readonly object[]) => Promise<string>;
  /** The lines of a results file; empty if there is no file. */
  readonly results: (fileId: string | null | undefined) => Promise<ResultLine[]>;
  /** Like SIGTERM, without any grace. */
  readonly stop: () => Promise<void>;
}

/** Queues that retry fast. */
export const queueOptions = { maxNumRunning: 2, retry: { firstMs: 10, mostMs: 20 } };

// One for all: they belong to the process, and take long to make.
const metrics = createMetrics(new Service({ maxNumRequests: 10 }), { numBodies: 0, numHeldBytes: 0 }, "tiny");

export function createBatchServer(options: BatchServerOptions): BatchServer {
  const { store, logs, script = () => ["x"], clock = { nowMs: startMs }, numTogether = 2 } = options;
  let log = "";
  const logger = createLogger({ level: "debug", write: (line) => (log += line) });
  const engine = createScriptedEngine(({ prompt }) => script(prompt.kind === "text" ? prompt.text : ""));
  const service = new Service({ maxNumRequests: 10 });
  service.engine = engine;
  const window = new WorkWindow(numTogether);
  const config = {
    defaultExtraArguments: {},
    maxLogprobs: 20,
    inlineImages: "completions" as const,
    schedulingPolicy: "fcfs" as const,
    servedModelNames: ["tiny"],
    engine: { maxNumWaiting: 9, videoLimits: defaultVideoLimits },
    videoSampling: {},
  };
  const tryLock = async () => ({ release() {} });
  const batches = new Batches({
    store,
    backgroundStore: store,
    queue: options.queue ?? createLocalJobQueue({ ...queueOptions, tryLock, logger }),
    runner: {
      logs,
      window: () => window,
      answer: { service, engine, metrics, logger, config },
      maxNumLines: 100,
      maxBodyBytes: 10_000,
      tickMs: options.tickMs ?? 10,
      now: () => clock.nowMs,
    },
    model: "tiny",
    limits: { maxFileBytes: 10_000, maxStoreBytes: 1_000_000, retentionMs: options.retentionMs ?? null },
    lookMs: options.lookMs ?? 20,
    cancelMs: 60_000,
    steadyNow: options.steadyNow ?? (() => clock.nowMs),
    logger,
  });
  const { files } = batches;
  return {
    batches,
    engine,
    clock,
    service,
    metrics,
    log: () => log,
    async queueLines(lines) {
      const id = files.newId();
      const numBytes = await files.receive(id, toChunks(lines));
      await files.publish(tenant, { id, numBytes, filename: "in.jsonl", purpose: "batch" });
      const created = await batches.create(tenant, { inputFileId: id, endpoint: "/v1/completions", metadata: null });
      if (created.kind !== "created") throw new Error(created.kind);
      return created.batch.id;
    },
    async results(fileId) {
      const chunks: Uint8Array[] = [];
      for await (const chunk of (await files.read(tenant, fileId ?? ""))?.chunks ?? []) chunks.push(chunk);
      const lines = Buffer.concat(chunks).toString().split("\n").slice(0, -1);
      return lines.map((line) => JSON.parse(line) as ResultLine);
    },
    async stop() {
      await Promise.all([service.drain(0), batches.stop()]);
    },
  };
}

/** The lines of a file of batches. */
async function* toChunks(lines: readonly object[]): AsyncGenerator<Uint8Array> {
  for (const line of lines) {
    yield Buffer.from(`${JSON.stringify({ method: "POST", url: "/v1/completions", ...line })}\n`);
  }
}

/** Lines with these prompts, each with an id after its prompt. */
export function linesOf(prompts: readonly string[]): object[] {
  return prompts.map((prompt) => ({ custom_id: `id-${prompt}`, body: { prompt } }));
}
