/** Messages and places that break things: nothing is lost, and every refusal is a result with a reason. */
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { CreateBucketCommand } from "@aws-sdk/client-s3";
import { Connection } from "rabbitmq-client";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";

import {
  createBullQueue,
  createNatsQueue,
  createPubSubJobs,
  createRabbitQueue,
  createSqsJobs,
} from "../../support/queues/job-queues.ts";
import type { FilledQueue } from "../../support/queues/job-queues.ts";
import { startFaultProxy } from "../../support/servers/fault-proxy.ts";
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
import { createResultGate } from "../../support/service/result-gate.ts";
import { startService } from "../../support/service/running-service.ts";

const bucket = "results";
const killer = `${new URL("../../engine/killing-processor.ts", import.meta.url).pathname}:KillsProcess`;
const short = { prompt: "a", max_tokens: 1, temperature: 0 };
/** Far above what any wait takes, also on a busy machine. */
const SLOW_MS = 240_000;

let redis: RedisServer;
let nats: NatsServer;
let rabbit: RabbitMqServer;
let aws: S3Server;
let pubSub: PubSubServer;

beforeAll(async () => {
  [redis, nats, rabbit, aws, pubSub] = await Promise.all([
    startRedisServer(),
    startNatsServer(),
    startRabbitMqServer(),
    startS3Server(),
    startPubSubServer(),
  ]);
  await aws.client.send(new CreateBucketCommand({ Bucket: bucket }));
  Object.assign(process.env, { AWS_ACCESS_KEY_ID: "test", AWS_SECRET_ACCESS_KEY: "test" });
}, SLOW_MS);

afterAll(async () => {
  await redis.kill();
  await nats[Symbol.asyncDispose]();
  await rabbit[Symbol.asyncDispose]();
  await aws.stop();
  await pubSub[Symbol.asyncDispose]();
});

const kinds: [string, (name?: string) => Promise<FilledQueue>][] = [
  ["BullMQ", (name) => createBullQueue(redis, name)],
  ["NATS", (name) => createNatsQueue(nats, name)],
  ["RabbitMQ", (name) => createRabbitQueue(rabbit, name)],
  ["SQS", (name) => createSqsJobs(aws, name)],
  ["Pub/Sub", (name) => createPubSubJobs(pubSub, name)],
];

const bodyOf = (custom_id: string, more: object = {}) => JSON.stringify({ custom_id, body: { ...short, ...more } });

/** A service of this process that takes jobs. */
function serviceSettings(address: string, prefix: string): Record<string, string> {
  return {
    JOB_SOURCE: address,
    JOB_RESULTS: `s3://${bucket}/${prefix}`,
    JOB_LEASE_SECONDS: "5",
    BATCH_STORE: "none",
    AWS_ENDPOINT_URL_S3: aws.endpoint,
    AWS_REGION: "us-east-1",
  };
}

const numStored = async (prefix: string): Promise<number> => (await listResults(aws, bucket, prefix)).length;

describe("a job that kills its worker goes to the dead letters after a count, and the others are answered", () => {
  test.concurrent.for(kinds)("%s", { timeout: 900_000 }, async ([, create], { expect }) => {
    await using queue = await create();
    const prefix = randomUUID();
    await queue.send([bodyOf("good-1"), bodyOf("poison", { vllm_xargs: { kills: true } }), bodyOf("good-2")]);
    const dead: string[] = [];
    let numDeaths = 0;
    while (dead.length === 0) {
      await using worker = startWorker({
        address: queue.address,
        endpoint: aws.endpoint,
        bucket,
        prefix,
        // Alone, so that jobs beside it are not suspected as well.
        environment: { LOGITS_PROCESSORS: killer, JOB_MAX_DELIVERIES: "2", BATCH_MAX_NUM_SEQS: "1" },
      });
      let hasEnded = false;
      void worker.exitCode.then(() => (hasEnded = true));
      await expect
        .poll(async () => hasEnded || dead.push(...(await queue.deadLetters())) > 0, { timeout: SLOW_MS })
        .toBe(true);
      if (hasEnded) expect(++numDeaths, worker.stdout()).toBeLessThanOrEqual(2);
      else await expect.poll(() => numStored(prefix), { timeout: SLOW_MS }).toBe(3);
    }
    expect(numDeaths).toBe(2);
    expect(dead.map((body) => (JSON.parse(body) as { readonly custom_id: string }).custom_id)).toEqual(["poison"]);
    const results = new Map((await readResults(aws, bucket, prefix)).map((result) => [result.custom_id ?? "", result]));
    expect([...results.keys()].toSorted()).toEqual(["good-1", "good-2", "poison"]);
    expect(results.get("poison")?.error).toMatchObject({
      code: "too_many_deliveries",
      message:
        "The job was handed out 3 times without a result; the limit is 2, which JOB_MAX_DELIVERIES sets. The logs of the workers say why.",
    });
    expect(results.get("good-1")?.response?.status_code).toBe(200);
    expect(results.get("good-2")?.response?.status_code).toBe(200);
  });
});

describe("a queue that is created after the service has started is used", () => {
  test.concurrent.for(kinds.filter(([name]) => name !== "BullMQ"))(
    "%s",
    { timeout: 900_000 },
    async ([, create], { expect }) => {
      const [name, prefix] = [`later-${randomUUID()}`, randomUUID()];
      // The address is known before there is a queue.
      const { address } = await create(`${name}-example`);
      await using service = await startService(serviceSettings(address.replaceAll(`${name}-example`, name), prefix));
      await expect.poll(() => service.log(), { timeout: SLOW_MS }).toMatch(/retrying/);
      await using queue = await create(name);
      await queue.send([bodyOf("late")]);
      await expect.poll(() => numStored(prefix), { timeout: SLOW_MS }).toBe(1);
      expect((await readResults(aws, bucket, prefix))[0]).toMatchObject({ response: { status_code: 200 } });
    },
  );
});

test(
  "messages of 10 MB are refused with the reason or answered, and other jobs go on",
  { timeout: 900_000 },
  async () => {
    const prefix = randomUUID();
    await using queue = await createRabbitQueue(rabbit);
    const huge = "x".repeat(10 * 1024 ** 2);
    await queue.send([
      bodyOf("long-prompt", { prompt: huge }),
      bodyOf("ignored-field", { user: huge }),
      huge,
      bodyOf("good"),
    ]);
    {
      await using _ = await startService(serviceSettings(queue.address, prefix));
      await expect.poll(() => numStored(prefix), { timeout: SLOW_MS }).toBe(4);
    }
    await queue.send([bodyOf("long-message", { prompt: huge })]);
    await using __ = await startService({ ...serviceSettings(queue.address, prefix), MAX_BODY_BYTES: "1MiB" });
    await expect.poll(() => numStored(prefix), { timeout: SLOW_MS }).toBe(5);
    const results = await readResults(aws, bucket, prefix);
    const outcomes = results.map(
      ({ custom_id: id, response, error }) => `${id}: ${response?.status_code ?? error?.code}`,
    );
    expect(outcomes.toSorted()).toEqual([
      "good: 200",
      // As over HTTP.
      "ignored-field: 200",
      "long-prompt: 400",
      "null: invalid_json",
      "null: message_too_long",
    ]);
  },
);

test("a message that is delivered five times under one id has one result", { timeout: 900_000 }, async () => {
  const [name, prefix] = [`twins-${randomUUID()}`, randomUUID()];
  await using queue = await createRabbitQueue(rabbit, name);
  const connection = new Connection(rabbit.url);
  const channel = await connection.acquire();
  await channel.confirmSelect();
  const envelope = { routingKey: name, contentType: "application/json", durable: true, messageId: "twin" };
  const body = JSON.stringify({
    custom_id: "twin",
    body: { ...short, max_tokens: 30, temperature: 1, ignore_eos: true },
  });
  for (let copy = 0; copy < 5; copy++) await channel.basicPublish(envelope, Buffer.from(body));
  await using service = await startService(serviceSettings(queue.address, prefix));
  await expect.poll(queue.numUnfinished, { timeout: SLOW_MS }).toBe(0);
  await expect
    .poll(async () => (await fetch(`${service.baseUrl}/metrics`)).text(), { timeout: SLOW_MS })
    .toMatch(/^fovea_jobs_total\{outcome="completed",.*\} 5$/m);
  expect(await listResults(aws, bucket, prefix)).toEqual([`${prefix}/twin.json`]);
  await channel.close();
  await connection.close();
});

test("credentials that expire in the middle are renewed, and all jobs are done", { timeout: 900_000 }, async () => {
  const prefix = randomUUID();
  const numJobs = 60;
  // Like the role of a container: each call for credentials gives new ones, which soon expire.
  let numIssued = 0;
  const issuer = createServer((_, response) => {
    response.writeHead(200, { "content-type": "application/json" }).end(
      JSON.stringify({
        AccessKeyId: `KEY${++numIssued}`,
        SecretAccessKey: "secret",
        Token: "token",
        Expiration: new Date(Date.now() + 60_000).toISOString(),
      }),
    );
  });
  const listening = Promise.withResolvers<void>();
  issuer.listen(0, "127.0.0.1", listening.resolve);
  await listening.promise;
  onTestFinished(() => void issuer.close());
  await using s3 = await startFaultProxy(aws.endpoint);
  const gate = createResultGate(s3, () => numStored(prefix));
  await using sqs = await startFaultProxy(aws.endpoint);
  await using queue = await createSqsJobs({ endpoint: sqs.endpoint, direct: aws.endpoint });
  await queue.send(Array.from({ length: numJobs }, (_, index) => bodyOf(`job-${index}`)));
  await using worker = startWorker({
    address: queue.address,
    endpoint: s3.endpoint,
    bucket,
    prefix,
    environment: {
      AWS_ACCESS_KEY_ID: "",
      AWS_SECRET_ACCESS_KEY: "",
      AWS_CONTAINER_CREDENTIALS_FULL_URI: `http://127.0.0.1:${(issuer.address() as AddressInfo).port}/role`,
      JOB_MAX_DELIVERIES: "50",
    },
  });
  await gate.untilStored(6, SLOW_MS);
  const numBefore = numIssued;
  // S3 and SQS no longer accept what they have accepted until now: jobs cannot be taken, kept, stored and completed.
  const numExpired = { s3: 0, sqs: 0 };
  s3.decide(() => (numExpired.s3++ < 10 ? "expire" : "forward"));
  s3.release();
  // The worker asks again after delays that double.
  sqs.decide(() => (numExpired.sqs++ < 4 ? "expire" : "forward"));
  await expect.poll(() => numStored(prefix), { timeout: SLOW_MS }).toBe(numJobs);
  expect(numExpired.s3).toBeGreaterThan(10);
  expect(numExpired.sqs).toBeGreaterThan(4);
  expect(numIssued).toBeGreaterThan(numBefore);
  expect(worker.stdout()).toContain("ExpiredToken");
  await expect.poll(queue.numUnfinished, { timeout: SLOW_MS }).toBe(0);
});
