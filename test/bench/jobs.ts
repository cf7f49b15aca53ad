/**
 * Jobs from queues with an engine that answers at once: the rate of the runner and the time of one job beside
 * those of HTTP requests, and the time until a stopping worker has returned its jobs.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { Agent, request } from "undici";

import { prepareLine } from "../../functions/batch/answer-line.ts";
import { WorkWindow } from "../../functions/batch/work-window.ts";
import { JobRunner } from "../../functions/jobs/job-runner.ts";
import type { JobSource } from "../../functions/jobs/job-source.ts";
import { readJobSource } from "../../functions/jobs/sources/job-sources.ts";
import { createLogger } from "../../functions/logger.ts";
import { createMetrics } from "../../functions/metrics.ts";
import { loadConfig } from "../../functions/settings/config.ts";
import type { Config } from "../../functions/settings/config.ts";
import { hang } from "../support/engine/scripted-engine.ts";
import type { Script } from "../support/engine/scripted-engine.ts";
import {
  createBullQueue,
  createNatsQueue,
  createPubSubJobs,
  createRabbitQueue,
  createSqsJobs,
} from "../support/queues/job-queues.ts";
import type { FilledQueue } from "../support/queues/job-queues.ts";
import { startNatsServer } from "../support/servers/nats-server.ts";
import { startPubSubServer } from "../support/servers/pubsub-server.ts";
import { startRabbitMqServer } from "../support/servers/rabbitmq-server.ts";
import { startRedisServer } from "../support/servers/redis-server.ts";
import { startRunpodServer } from "../support/servers/runpod-server.ts";
import { startS3Server } from "../support/servers/s3-server.ts";
import { createTestApp, serveApp } from "../support/service/test-app.ts";
import { median, plainFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";

const numJobs = 1000;
/** The server of the tests answers a few dozen calls a second. */
const numJobsOfMoto = 100;
/** Jobs and requests whose time is measured one by one. */
const numAlone = 40;
const numConcurrent = 32;
const leaseMs = 60_000;
const job = { prompt: "a", max_tokens: 1 };
const logger = createLogger({ level: "error", write: (line) => process.stderr.write(line) });
const { runpod } = loadConfig({}).jobs;

interface BenchQueue {
  readonly name: string;
  readonly numJobs: number;
  /** False if the queue takes no jobs back from a worker. Default true. */
  readonly takesJobsBack?: boolean;
  readonly create: () => Promise<MeasuredQueue>;
}

interface MeasuredQueue extends Omit<FilledQueue, "numUnfinished" | "deadLetters"> {
  /** What RunPod tells another worker. */
  readonly worker?: () => Config["jobs"]["runpod"];
}

/** A server of its own: RunPod has one queue per endpoint. */
async function createRunpodQueue(): Promise<MeasuredQueue> {
  const server = await startRunpodServer();
  return {
    address: "runpod://",
    async send(bodies) {
      for (const body of bodies) server.run(body);
    },
    worker: () => loadConfig(server.environment()).jobs.runpod,
    [Symbol.asyncDispose]: server.stop,
  };
}

/** @param rounds How often each side is measured, alternately. */
export async function benchJobs(rounds: number): Promise<Figure[]> {
  const [redis, nats, rabbit, aws, pubSub] = await Promise.all([
    startRedisServer(),
    startNatsServer(),
    startRabbitMqServer(),
    startS3Server(),
    startPubSubServer(),
  ]);
  process.env.AWS_ACCESS_KEY_ID = "test";
  process.env.AWS_SECRET_ACCESS_KEY = "test";
  const queues: readonly BenchQueue[] = [
    { name: "BullMQ", numJobs, create: () => createBullQueue(redis) },
    { name: "NATS", numJobs, create: () => createNatsQueue(nats) },
    { name: "RabbitMQ", numJobs, create: () => createRabbitQueue(rabbit) },
    { name: "SQS (moto)", numJobs: numJobsOfMoto, create: () => createSqsJobs(aws) },
    { name: "Pub/Sub (the tests' server)", numJobs, create: () => createPubSubJobs(pubSub) },
    { name: "RunPod (the tests' server)", numJobs, takesJobsBack: false, create: createRunpodQueue },
  ];
  const figures: Figure[] = [];
  try {
    for (const { name, numJobs: count, takesJobsBack = true, create } of queues) {
      const rates: number[] = [];
      const httpRates: number[] = [];
      const latencies: number[] = [];
      const httpLatencies: number[] = [];
      const returns: number[] = [];
      for (let round = 0; round < rounds; round++) {
        await using queue = await create();
        reportProgress(`jobs of ${name}, round ${round + 1} of ${rounds}`);
        const http = await measureHttp();
        httpRates.push(http.rate);
        httpLatencies.push(http.latencyMs);
        rates.push(await measureJobs(queue, count));
        latencies.push(await measureLatency(queue));
        if (takesJobsBack) returns.push(await measureReturn(queue));
      }
      figures.push(
        compare(`jobs of ${name} / HTTP requests, ${numConcurrent} at once`, "1/s", rates, httpRates),
        compare(`${name}: one job, from sending to done / one HTTP request`, "ms", latencies, httpLatencies),
      );
      if (!takesJobsBack) continue;
      figures.push(plainFigure(`${name}: from the stop until ${numConcurrent} jobs are returned`, "ms", returns));
    }
  } finally {
    await redis.kill();
    for (const server of [nats, rabbit, pubSub]) await server[Symbol.asyncDispose]();
    await aws.stop();
  }
  return figures;
}

function compare(name: string, unit: string, ours: readonly number[], theirs: readonly number[]): Figure {
  const ratio = median(ours.map((rate, round) => rate / theirs[round]!));
  const rounds = { ours, theirs };
  return { name, unit, ours: median(ours), theirs: median(theirs), ratio, target: null, reached: null, rounds };
}

const open = (queue: MeasuredQueue): Promise<JobSource> =>
  readJobSource(
    queue.address,
    queue.worker?.() ?? runpod,
  )({ leaseMs, maxNumDeliveries: 5, awsRegion: "us-east-1", listModels: () => ({}), logger });

const fill = (queue: MeasuredQueue, count: number): Promise<void> =>
  queue.send(Array.from({ length: count }, () => JSON.stringify(job)));

/** Requests per second, many at once, and the median time of a request alone. */
async function measureHttp(): Promise<{ readonly rate: number; readonly latencyMs: number }> {
  await using served = await serveApp(createTestApp());
  const dispatcher = new Agent({ connections: numConcurrent });
  const post = async (): Promise<void> => {
    const { body } = await request(`${served.baseUrl}/v1/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(job),
      dispatcher,
    });
    await body.dump();
  };
  let numLeft = numJobs;
  const startMs = performance.now();
  const sender = async (): Promise<void> => {
    while (numLeft-- > 0) await post();
  };
  await Promise.all(Array.from({ length: numConcurrent }, sender));
  const seconds = (performance.now() - startMs) / 1000;
  const latencyMs = await medianTime(post);
  await dispatcher.close();
  return { rate: numJobs / seconds, latencyMs };
}

/** Median milliseconds of one call after the other. */
async function medianTime(call: () => Promise<void>): Promise<number> {
  const times: number[] = [];
  for (let n = 0; n < numAlone; n++) {
    const startMs = performance.now();
    await call();
    times.push(performance.now() - startMs);
  }
  return median(times);
}

/** Jobs per second. */
async function measureJobs(queue: MeasuredQueue, count: number): Promise<number> {
  await fill(queue, count);
  const done = Promise.withResolvers<void>();
  let numDone = 0;
  const { runner } = await createRunner(queue, ["a"], () => {
    if (++numDone === count) done.resolve();
  });
  const startMs = performance.now();
  runner.start();
  await done.promise;
  const seconds = (performance.now() - startMs) / 1000;
  await runner.close();
  return count / seconds;
}

/** Milliseconds from the sending of a job to an idle worker until the queue has its end. */
async function measureLatency(queue: MeasuredQueue): Promise<number> {
  let done = Promise.withResolvers<void>();
  const { runner } = await createRunner(queue, ["a"], () => done.resolve());
  runner.start();
  const latencyMs = await medianTime(async () => {
    done = Promise.withResolvers<void>();
    await fill(queue, 1);
    await done.promise;
  });
  await runner.close();
  return latencyMs;
}

/** Milliseconds. */
async function measureReturn(queue: MeasuredQueue): Promise<number> {
  await fill(queue, numConcurrent);
  const { runner, app } = await createRunner(queue, [hang], () => {});
  runner.start();
  while (app.engine.numRunning < numConcurrent) await sleep(10);
  const startMs = performance.now();
  await Promise.all([app.service.drain(0), runner.stop()]);
  const milliseconds = performance.now() - startMs;
  await runner.close();
  return milliseconds;
}

async function createRunner(queue: MeasuredQueue, script: Script, onOutcome: () => void) {
  const app = createTestApp({ script });
  const answer = {
    service: app.service,
    engine: app.engine,
    metrics: createMetrics(app.service, app.bodies, "bench"),
    logger,
    config: app.config,
    tenant: "",
  };
  const runner = new JobRunner({
    source: await open(queue),
    sinks: [],
    openTargets: () => [],
    prepareLine: (line) => prepareLine(line, answer),
    runFile: async () => null,
    window: new WorkWindow(numConcurrent),
    maxNumDeliveries: 5,
    maxMessageBytes: 100_000,
    retry: { firstMs: 1000, mostMs: 1000 },
    onOutcome,
    logger,
  });
  return { runner, app };
}
