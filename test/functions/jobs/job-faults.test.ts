/**
 * Hundreds of jobs while workers, queues and S3 fail: workers are killed, stopped, paused beyond their leases, and have
 * wrong clocks; the server of the queue crashes or becomes unreachable; S3 rejects all calls for a while.
 */
import { randomUUID } from "node:crypto";
import { CreateBucketCommand } from "@aws-sdk/client-s3";
import { afterAll, beforeAll, describe, test } from "vitest";

import {
  createBullQueue,
  createNatsQueue,
  createPubSubJobs,
  createRabbitQueue,
  createSqsJobs,
} from "../../support/queues/job-queues.ts";
import type { FilledQueue } from "../../support/queues/job-queues.ts";
import { startFaultProxy } from "../../support/servers/fault-proxy.ts";
import type { FaultProxy } from "../../support/servers/fault-proxy.ts";
import { startNatsServer } from "../../support/servers/nats-server.ts";
import type { NatsServer } from "../../support/servers/nats-server.ts";
import { startPubSubServer } from "../../support/servers/pubsub-server.ts";
import type { PubSubServer } from "../../support/servers/pubsub-server.ts";
import { startRabbitMqServer } from "../../support/servers/rabbitmq-server.ts";
import type { RabbitMqServer } from "../../support/servers/rabbitmq-server.ts";
import { startRedisServer } from "../../support/servers/redis-server.ts";
import type { RedisServer } from "../../support/servers/redis-server.ts";
import { startS3Server } from "../../support/servers/s3-server.ts";
import type { S3Server } from "../../support/servers/s3-server.ts";
import { listResults, readResults, startWorker } from "../../support/service/job-worker.ts";
import type { WorkerOptions } from "../../support/service/job-worker.ts";
import { createResultGate } from "../../support/service/result-gate.ts";

const bucket = "results";
const hourMs = 3_600_000;
/** Far above what a phase takes, also on a busy machine. */
const PHASE_MS = 300_000;
/** Calls that an outage rejects: more than the retries of one job. */
const NUM_REFUSED = 10;

let redis: RedisServer;
let nats: NatsServer;
let rabbit: RabbitMqServer;
let aws: S3Server;
let pubSub: PubSubServer;

beforeAll(async () => {
  const persistent = { settings: ["--appendonly", "yes", "--appendfsync", "always"] };
  [redis, nats, rabbit, aws, pubSub] = await Promise.all([
    startRedisServer(persistent),
    startNatsServer(),
    startRabbitMqServer(),
    startS3Server(),
    startPubSubServer(),
  ]);
  await aws.client.send(new CreateBucketCommand({ Bucket: bucket }));
}, PHASE_MS);

afterAll(async () => {
  await redis.kill();
  await nats[Symbol.asyncDispose]();
  await rabbit[Symbol.asyncDispose]();
  await aws.stop();
  await pubSub[Symbol.asyncDispose]();
});

interface Fallible {
  readonly queue: FilledQueue;
  /** Takes the queue's server away for a while. */
  readonly outage: () => Promise<void>;
}

/** Rejects all calls until some have been rejected. */
async function refuseSome(proxy: FaultProxy): Promise<void> {
  let numRefused = 0;
  const { promise: enough, resolve } = Promise.withResolvers<void>();
  proxy.decide(() => {
    if (++numRefused === NUM_REFUSED) resolve();
    return "refuse";
  });
  proxy.release();
  await enough;
  proxy.decide(() => "forward");
}

async function behindProxy(target: string, create: (endpoint: string) => Promise<FilledQueue>): Promise<Fallible> {
  const proxy = await startFaultProxy(target);
  const queue = await create(proxy.endpoint);
  return {
    outage: () => refuseSome(proxy),
    queue: {
      ...queue,
      async [Symbol.asyncDispose]() {
        await queue[Symbol.asyncDispose]();
        await proxy[Symbol.asyncDispose]();
      },
    },
  };
}

/** RabbitMQ keeps the messages of a paused worker for as long as their connection lives. */
const sources: [string, number, () => Promise<Fallible>, { readonly leasesExpire: boolean }?][] = [
  ["BullMQ", 200, async () => ({ queue: await createBullQueue(redis), outage: () => redis.restart() })],
  ["NATS", 200, async () => ({ queue: await createNatsQueue(nats), outage: () => nats.restart() })],
  [
    "RabbitMQ",
    200,
    async () => ({ queue: await createRabbitQueue(rabbit), outage: () => rabbit.restart() }),
    { leasesExpire: false },
  ],
  ["SQS", 200, () => behindProxy(aws.endpoint, (endpoint) => createSqsJobs({ endpoint, direct: aws.endpoint }))],
  ["Pub/Sub", 200, () => behindProxy(pubSub.url, (url) => createPubSubJobs({ ...pubSub, url }))],
];

describe("every job has one result, and none is lost, whatever fails in the middle", () => {
  test.for(sources)(
    "%s, %i jobs",
    { timeout: 240_000 },
    async ([, numJobs, open, { leasesExpire } = { leasesExpire: true }], { expect }) => {
      const { queue, outage } = await open();
      await using _ = queue;
      await using s3 = await startFaultProxy(aws.endpoint);
      const prefix = randomUUID();
      const customIds = Array.from({ length: numJobs }, (_, index) => `job-${index}`);
      await queue.send(
        customIds.map((id) => JSON.stringify({ custom_id: id, body: { prompt: "a", max_tokens: 1, temperature: 0 } })),
      );
      const options: WorkerOptions = {
        address: queue.address,
        endpoint: s3.endpoint,
        bucket,
        prefix,
        // The attempts that faults end must not count as poison.
        environment: { JOB_MAX_DELIVERIES: "50" },
      };
      const numStored = async (): Promise<number> => (await listResults(aws, bucket, prefix)).length;
      const gate = createResultGate(s3, numStored);
      const untilStored = (share: number): Promise<void> => gate.untilStored(share * numJobs, PHASE_MS);

      await using killed = startWorker(options);
      await using paused = startWorker({ ...options, clockShiftMs: hourMs });
      await untilStored(0.15);
      killed.child.kill("SIGKILL");
      await using stopped = startWorker({ ...options, clockShiftMs: -hourMs });
      await untilStored(0.3);
      await Promise.all([outage(), untilStored(0.45)]);
      await refuseSome(s3);
      gate.resume();
      await stopped.waitForLog("Taking jobs.");
      paused.child.kill("SIGSTOP");
      await untilStored(0.6);
      stopped.child.kill("SIGTERM");
      expect(await stopped.exitCode, stopped.stdout()).not.toBeNull();
      expect(await numStored()).toBeLessThan(numJobs);
      gate.open();
      await using __ = startWorker(options);
      await untilStored(leasesExpire ? 1 : 0.8);
      // It returns its jobs late: others have them.
      paused.child.kill("SIGCONT");
      await untilStored(1);

      await expect.poll(queue.numUnfinished, { timeout: PHASE_MS }).toBe(0);
      const results = await readResults(aws, bucket, prefix);
      expect(results.map(({ custom_id: id }) => id ?? "").toSorted()).toEqual(customIds.toSorted());
      expect(results.filter(({ response }) => response?.status_code !== 200)).toEqual([]);
      expect(await queue.deadLetters()).toEqual([]);
    },
  );
});
