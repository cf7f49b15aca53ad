/**
 * Jobs from queues with an engine that answers at once: the rate of the runner beside that of HTTP requests, and the
 * time until a stopping worker has returned its jobs.
 */
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { Queue } from "bullmq";
import { Agent, request } from "undici";

import { prepareLine } from "../../functions/batch/answer-line.ts";
import { WorkWindow } from "../../functions/batch/work-window.ts";
import { JobRunner } from "../../functions/jobs/job-runner.ts";
import type { JobSource } from "../../functions/jobs/job-source.ts";
import { createNatsJobSource } from "../../functions/jobs/sources/nats-job-source.ts";
import { createRedisJobSource } from "../../functions/jobs/sources/redis-job-source.ts";
import { createSqsJobSource } from "../../functions/jobs/sources/sqs-job-source.ts";
import { createLogger } from "../../functions/logger.ts";
import { createMetrics } from "../../functions/metrics.ts";
import { startNatsServer } from "../support/nats-server.ts";
import { startRedisServer } from "../support/redis-server.ts";
import { startS3Server } from "../support/s3-server.ts";
import { hang } from "../support/scripted-engine.ts";
import type { Script } from "../support/scripted-engine.ts";
import { createSqsQueue } from "../support/sqs-queue.ts";
import { createTestApp, serveApp } from "../support/test-app.ts";
import { median, plainFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";

const numJobs = 1000;
/** The server of the tests answers a few dozen calls a second. */
const numJobsOfSqs = 100;
const numConcurrent = 32;
const leaseMs = 60_000;
const job = { prompt: "a", max_tokens: 1 };

interface BenchQueue {
  readonly name: string;
  readonly numJobs: number;
  readonly open: () => Promise<JobSource>;
  readonly fill: (numJobs: number) => Promise<void>;
  readonly close: () => Promise<void>;
}

/** @param rounds How often each side is measured, alternately. */
export async function benchJobs(rounds: number): Promise<Figure[]> {
  const [redis, nats, aws] = await Promise.all([startRedisServer(), startNatsServer(), startS3Server()]);
  process.env.AWS_ACCESS_KEY_ID = "test";
  process.env.AWS_SECRET_ACCESS_KEY = "test";
  const makers = [() => redisQueue(redis.url), () => natsQueue(nats.address), () => sqsQueue(aws.endpoint)];
  const figures: Figure[] = [];
  try {
    for (const make of makers) {
      const rates: number[] = [];
      const httpRates: number[] = [];
      const returns: number[] = [];
      let name = "";
      for (let round = 0; round < rounds; round++) {
        const queue = await make();
        name = queue.name;
        reportProgress(`jobs of ${name}, round ${round + 1} of ${rounds}`);
        httpRates.push(await measureHttp());
        rates.push(await measureJobs(queue));
        returns.push(await measureReturn(queue));
        await queue.close();
      }
      figures.push(
        compare(`jobs of ${name} / HTTP requests, ${numConcurrent} at once`, rates, httpRates),
        plainFigure(`${name}: from the stop until ${numConcurrent} jobs are returned`, "ms", returns),
      );
    }
  } finally {
    await redis.kill();
    await nats[Symbol.asyncDispose]();
    await aws.stop();
  }
  return figures;
}

function compare(name: string, ours: readonly number[], theirs: readonly number[]): Figure {
  const ratio = median(ours.map((rate, round) => rate / theirs[round]!));
  const rounds = { ours, theirs };
  return { name, unit: "1/s", ours: median(ours), theirs: median(theirs), ratio, target: null, reached: null, rounds };
}

async function redisQueue(url: string): Promise<BenchQueue> {
  const name = randomUUID();
  const queue = new Queue(name, { connection: { url } });
  return {
    name: "BullMQ",
    numJobs,
    open: async () => createRedisJobSource({ url, queue: name, prefix: "bull", leaseMs }),
    async fill(count) {
      await queue.addBulk(Array.from({ length: count }, () => ({ name: "job", data: job })));
    },
    close: () => queue.close(),
  };
}

async function natsQueue(server: string): Promise<BenchQueue> {
  const stream = randomUUID();
  const connection = await connect({ servers: server });
  await (await jetstreamManager(connection)).streams.add({ name: stream, subjects: [stream] });
  const client = jetstream(connection);
  const options = { server, user: null, tls: false, stream, consumer: "workers", deadLetterSubject: null, leaseMs };
  return {
    name: "NATS",
    numJobs,
    open: () => createNatsJobSource(options),
    async fill(count) {
      await Promise.all(Array.from({ length: count }, () => client.publish(stream, JSON.stringify(job))));
    },
    close: () => connection.close(),
  };
}

async function sqsQueue(endpoint: string): Promise<BenchQueue> {
  const queue = await createSqsQueue(endpoint, randomUUID());
  return {
    name: "SQS (moto)",
    numJobs: numJobsOfSqs,
    open: async () => createSqsJobSource({ queueUrl: queue.url, region: "us-east-1", leaseMs }),
    async fill(count) {
      for (let start = 0; start < count; start += numConcurrent) {
        const size = Math.min(numConcurrent, count - start);
        await Promise.all(Array.from({ length: size }, () => queue.send(JSON.stringify(job))));
      }
    },
    async close() {},
  };
}

/** Requests per second. */
async function measureHttp(): Promise<number> {
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
  await dispatcher.close();
  return numJobs / seconds;
}

/** Jobs per second. */
async function measureJobs(queue: BenchQueue): Promise<number> {
  await queue.fill(queue.numJobs);
  const done = Promise.withResolvers<void>();
  let numDone = 0;
  const { runner } = await createRunner(queue, ["a"], () => {
    if (++numDone === queue.numJobs) done.resolve();
  });
  const startMs = performance.now();
  runner.start();
  await done.promise;
  const seconds = (performance.now() - startMs) / 1000;
  await runner.close();
  return queue.numJobs / seconds;
}

/** Milliseconds. */
async function measureReturn(queue: BenchQueue): Promise<number> {
  await queue.fill(numConcurrent);
  const { runner, app } = await createRunner(queue, [hang], () => {});
  runner.start();
  while (app.engine.numRunning < numConcurrent) await sleep(10);
  const startMs = performance.now();
  await Promise.all([app.service.drain(0), runner.stop()]);
  const milliseconds = performance.now() - startMs;
  await runner.close();
  return milliseconds;
}

async function createRunner(queue: BenchQueue, script: Script, onOutcome: () => void) {
  const app = createTestApp({ script });
  const logger = createLogger({ level: "error", write: (line) => process.stderr.write(line) });
  const answer = {
    service: app.service,
    engine: app.engine,
    metrics: createMetrics(app.service, app.bodies, "bench"),
    logger,
    config: app.config,
    tenant: "",
  };
  const runner = new JobRunner({
    source: await queue.open(),
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
