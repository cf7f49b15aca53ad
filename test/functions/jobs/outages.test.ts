/** Queues and places of results that do not work for a while, also while the service stops. */
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import {
  CreateBucketCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
} from "@aws-sdk/client-s3";
import { Queue } from "bullmq";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";

import { startFaultProxy } from "../../support/servers/fault-proxy.ts";
import type { FaultProxy, ProxiedRequest } from "../../support/servers/fault-proxy.ts";
import { startRedisServer } from "../../support/servers/redis-server.ts";
import type { RedisServer } from "../../support/servers/redis-server.ts";
import { startS3Server } from "../../support/servers/s3-server.ts";
import type { S3Server } from "../../support/servers/s3-server.ts";
import { startWebhookReceiver } from "../../support/servers/webhook-receiver.ts";
import type { WebhookReceiver } from "../../support/servers/webhook-receiver.ts";
import { readResults } from "../../support/service/job-worker.ts";
import { startService } from "../../support/service/running-service.ts";

const bucket = "results";
const short = { prompt: "a", max_tokens: 1, temperature: 0 };
/** Far above what any wait takes, also on a busy machine. */
const SLOW_MS = 240_000;

let redis: RedisServer;
let aws: S3Server;
let s3: FaultProxy;
let hooks: WebhookReceiver;

beforeAll(async () => {
  [redis, aws, hooks] = await Promise.all([startRedisServer(), startS3Server(), startWebhookReceiver()]);
  s3 = await startFaultProxy(aws.endpoint);
  await aws.client.send(new CreateBucketCommand({ Bucket: bucket }));
  Object.assign(process.env, { AWS_ACCESS_KEY_ID: "test", AWS_SECRET_ACCESS_KEY: "test" });
}, SLOW_MS);

afterAll(async () => {
  await s3[Symbol.asyncDispose]();
  await hooks[Symbol.asyncDispose]();
  await aws.stop();
  await redis.kill();
});

/** A queue of its own, and a service that takes its jobs. */
function createQueue(settings: Readonly<Record<string, string>> = {}, server = redis) {
  const [name, prefix] = [`jobs-${randomUUID()}`, randomUUID()];
  const queue = new Queue(name, { connection: { url: server.url } });
  queue.on("error", () => {});
  onTestFinished(() => queue.disconnect());
  const start = (places = `s3://${bucket}/${prefix}`) =>
    startService({
      JOB_SOURCE: `${server.url}?queue=${name}`,
      JOB_RESULTS: places,
      BATCH_STORE: "none",
      AWS_ENDPOINT_URL_S3: s3.endpoint,
      AWS_REGION: "us-east-1",
      ...settings,
    });
  return { queue, prefix, start };
}

const stateOf = async (queue: Queue, id: string | undefined) => (await queue.getJob(id ?? ""))?.getState();

test("a job whose result cannot be stored for a while is answered, however few deliveries it may have", async () => {
  const { queue, prefix, start } = createQueue({ JOB_MAX_DELIVERIES: "1" });
  let numRefused = 0;
  s3.decide(({ method }) => (method === "PUT" && ++numRefused > 0 ? "refuse" : "forward"));
  await using service = await start();
  const job = await queue.add("job", short);
  // The second delay is over.
  await expect.poll(() => numRefused, { timeout: SLOW_MS }).toBeGreaterThan(6);
  s3.decide(() => "forward");
  await expect.poll(() => stateOf(queue, job.id), { timeout: SLOW_MS }).toBe("completed");
  expect(await readResults(aws, bucket, prefix)).toMatchObject([{ id: job.id, response: { status_code: 200 } }]);
  expect(service.log().split("does not work; jobs wait for it").length - 1).toBe(1);
});

test.for(["GET", "PUT"])(
  "a service that stops while S3 hangs at %s returns its jobs, and another one stores each result once",
  async (hanging) => {
    const { queue, prefix, start } = createQueue();
    let numHeld = 0;
    s3.decide(({ method }) => (method === hanging && ++numHeld > 0 ? "hold" : "forward"));
    const service = await start();
    const jobs = await queue.addBulk([1, 2, 3].map((n) => ({ name: "job", data: { ...short, seed: n } })));
    await expect.poll(() => numHeld, { timeout: SLOW_MS }).toBeGreaterThanOrEqual(3);
    await service[Symbol.asyncDispose]();
    expect(await Promise.all(jobs.map(({ id }) => stateOf(queue, id)))).toEqual(jobs.map(() => "waiting"));
    s3.decide(() => "forward");
    // They arrive late.
    s3.release();
    await using _ = await start();
    for (const { id } of jobs) await expect.poll(() => stateOf(queue, id), { timeout: SLOW_MS }).toBe("completed");
    const results = await readResults(aws, bucket, prefix);
    expect(results.map(({ id }) => id).toSorted()).toEqual(jobs.map(({ id }) => id));
  },
);

test("all places get the result that another worker has stored in the meantime", async () => {
  const { queue, prefix, start } = createQueue();
  let numHeld = 0;
  s3.decide(({ method }) => (method === "PUT" && ++numHeld > 0 ? "hold" : "forward"));
  await using _ = await start(`${hooks.url}/twice,s3://${bucket}/${prefix}`);
  const job = await queue.add("job", short, { jobId: "twice" });
  await expect.poll(() => numHeld, { timeout: SLOW_MS }).toBe(1);
  const stored = { id: "twice", custom_id: "twice", response: { status_code: 200, body: "the other's" }, error: null };
  const Key = `${prefix}/twice.json`;
  await aws.client.send(new PutObjectCommand({ Bucket: bucket, Key, Body: JSON.stringify(stored) }));
  s3.decide(() => "forward");
  s3.release();
  await expect.poll(() => stateOf(queue, job.id), { timeout: SLOW_MS }).toBe("completed");
  expect((await queue.getJob("twice"))?.returnvalue).toEqual(stored);
  const received = hooks.received.filter(({ path }) => path === "/twice");
  expect(received.map(({ body }) => JSON.parse(body) as object)).toMatchObject([{ data: stored }]);
});

test.for([
  ["its segments are deleted", "DELETE"],
  ["its job is answered", "PUT"],
])(
  "a file whose worker ends between writing the output and the time when %s stays as it is",
  { timeout: SLOW_MS },
  async ([, hanging]) => {
    const folder = `files/${randomUUID()}`;
    const place = `${bucket}/${folder}`;
    const { queue, prefix, start } = createQueue({ JOB_ALLOWED_TARGETS: `s3://${place}`, JOB_LEASE_SECONDS: "5" });
    const read = async (): Promise<string> => {
      const { Body } = await aws.client.send(new GetObjectCommand({ Bucket: bucket, Key: `${folder}/out.jsonl` }));
      return (await Body?.transformToString()) ?? "";
    };
    const line = (id: number) =>
      JSON.stringify({
        custom_id: `${id}`,
        method: "POST",
        url: "/v1/completions",
        body: { ...short, temperature: 1 },
      });
    const input = [1, 2, 3].map(line).join("\n");
    await aws.client.send(new PutObjectCommand({ Bucket: bucket, Key: `${folder}/in.jsonl`, Body: input }));
    let isWritten = false;
    s3.decide(({ method, path }) => {
      if (isWritten && method === hanging) return "hold";
      isWritten ||= method === "PUT" && path.startsWith(`/${place}/out.jsonl?`);
      return "forward";
    });
    const first = await start();
    const job = await queue.add("file", { input: `s3://${place}/in.jsonl`, output: `s3://${place}/out.jsonl` });
    await expect.poll(() => isWritten, { timeout: SLOW_MS }).toBe(true);
    await first[Symbol.asyncDispose]();
    const written = await read();
    expect(written.split("\n")).toHaveLength(4);
    s3.decide(() => "forward");
    await using second = await start();
    await expect.poll(() => stateOf(queue, job.id), { timeout: SLOW_MS }).toBe("completed");
    expect(await read()).toBe(written);
    expect(await readResults(aws, bucket, prefix)).toMatchObject([
      { response: { body: { request_counts: { total: 3, completed: 3, failed: 0 } } } },
    ]);
    expect(second.log()).not.toContain("error");
    const { Contents = [] } = await aws.client.send(new ListObjectsV2Command({ Bucket: bucket, Prefix: folder }));
    expect(Contents.map(({ Key }) => Key?.split("/").at(-1))).toEqual(["in.jsonl", "out.jsonl"]);

    // A new input under the same id of a job is answered again.
    await aws.client.send(new PutObjectCommand({ Bucket: bucket, Key: `${folder}/in.jsonl`, Body: line(4) }));
    await aws.client.send(new DeleteObjectCommand({ Bucket: bucket, Key: `${prefix}/${job.id}.json` }));
    await (await queue.getJob(job.id ?? ""))?.retry("completed");
    await expect.poll(async () => (await read()).split("\n").length, { timeout: SLOW_MS }).toBe(2);
  },
);

test.for([
  ["reading the input", "GET", "in.jsonl?"],
  ["storing results", "PUT", "out.jsonl.parts/"],
  ["writing the output", "PUT", "out.jsonl?"],
  ["uploading a long output", "PUT", "out.jsonl?partNumber=1&"],
])("a service that stops while S3 hangs at %s of a file returns its job", { timeout: SLOW_MS }, async (step) => {
  const [what, method, name] = step as [string, string, string];
  const place = `${bucket}/files/${randomUUID()}`;
  const { queue, start } = createQueue({ JOB_ALLOWED_TARGETS: `s3://${place}` });
  // An output of more than one part: each error repeats the id of its line.
  const numLines = what.includes("long") ? 25_000 : 3;
  const line = (id: number) =>
    JSON.stringify({ custom_id: `${id}-`.padEnd(200, "x"), url: "/v1/completions", body: {} });
  const Body = Array.from({ length: numLines }, (_, id) => line(id)).join("\n");
  const [Bucket = "", ...folder] = place.split("/");
  await aws.client.send(new PutObjectCommand({ Bucket, Key: `${folder.join("/")}/in.jsonl`, Body }));
  let numHeld = 0;
  const hangs = (request: ProxiedRequest) =>
    request.method === method && request.path.startsWith(`/${place}/${name}`) && ++numHeld > 0;
  s3.decide((request) => (hangs(request) ? "hold" : "forward"));
  const first = await start();
  const job = await queue.add("file", { input: `s3://${place}/in.jsonl`, output: `s3://${place}/out.jsonl` });
  await expect.poll(() => numHeld, { timeout: SLOW_MS }).toBeGreaterThan(0);
  await first[Symbol.asyncDispose]();
  expect(await stateOf(queue, job.id)).toBe("waiting");
  expect(first.log()).not.toContain("The queue does not answer");
  s3.decide(() => "forward");
  s3.release();
  await using _ = await start();
  await expect.poll(() => stateOf(queue, job.id), { timeout: SLOW_MS }).toBe("completed");
});

/** A file of one line. */
async function writeFile(): Promise<{ readonly input: string; readonly output: string; readonly place: string }> {
  const folder = `files/${randomUUID()}`;
  const Body = JSON.stringify({ custom_id: "a", method: "POST", url: "/v1/completions", body: short });
  await aws.client.send(new PutObjectCommand({ Bucket: bucket, Key: `${folder}/in.jsonl`, Body }));
  const place = `s3://${bucket}/${folder}`;
  return { input: `${place}/in.jsonl`, output: `${place}/out.jsonl`, place };
}

test("a file waits while S3 rejects all calls, however few deliveries its job may have", async () => {
  const { input, output, place } = await writeFile();
  const { queue, start } = createQueue({ JOB_ALLOWED_TARGETS: place, JOB_MAX_DELIVERIES: "1" });
  let numRefused = 0;
  s3.decide(({ path }) => (path.includes("/files/") && ++numRefused > 0 ? "refuse" : "forward"));
  await using service = await start();
  const job = await queue.add("file", { input, output });
  // The second delay is over.
  await expect.poll(() => numRefused, { timeout: SLOW_MS }).toBeGreaterThan(6);
  s3.decide(() => "forward");
  await expect.poll(() => stateOf(queue, job.id), { timeout: SLOW_MS }).toBe("completed");
  expect((await queue.getJob(job.id ?? ""))?.attemptsStarted).toBe(1);
  expect(service.log().split("S3 does not work; the job of a file waits for it.")).toHaveLength(2);
});

test("a file that the worker may not read is rejected after its last delivery, with the reason", async () => {
  const { input, output, place } = await writeFile();
  const { queue, start } = createQueue({ JOB_ALLOWED_TARGETS: place, JOB_MAX_DELIVERIES: "2" });
  s3.decide(({ path }) => (path.includes("/files/") ? "deny" : "forward"));
  await using _ = await start();
  const job = await queue.add("file", { input, output });
  await expect.poll(() => stateOf(queue, job.id), { timeout: SLOW_MS }).toBe("failed");
  s3.decide(() => "forward");
  const failed = await queue.getJob(job.id ?? "");
  expect(failed?.attemptsStarted).toBe(2);
  expect(failed?.failedReason).toContain("storage_failed");
  expect(failed?.failedReason).toContain("not authorized to perform this operation");
});

const askAbout = (url: string) => ({
  messages: [{ role: "user", content: [{ type: "image_url", image_url: { url } }] }],
  max_tokens: 1,
});

test("a job whose picture S3 does not hand out for a while is answered about it", async () => {
  const Key = `pictures/${randomUUID()}.png`;
  const Body = await readFile("models/fovea-shapes/examples/circles.png");
  await aws.client.send(new PutObjectCommand({ Bucket: bucket, Key, Body }));
  const { queue, start } = createQueue();
  let numRefused = 0;
  s3.decide(({ path }) => (path.includes(Key) && ++numRefused > 0 ? "refuse" : "forward"));
  await using _ = await start();
  const job = await queue.add("job", askAbout(`s3://${bucket}/${Key}`));
  const attempts = async () => (await queue.getJob(job.id ?? ""))?.attemptsStarted;
  await expect.poll(attempts, { timeout: SLOW_MS }).toBe(2);
  s3.decide(() => "forward");
  await expect.poll(() => stateOf(queue, job.id), { timeout: SLOW_MS }).toBe("completed");
  expect((await queue.getJob(job.id ?? ""))?.returnvalue).toMatchObject({ response: { status_code: 200 } });
});

test.for([
  ["that S3 never hands out has an error after its last delivery", "refuse", 2, 503, "failed"],
  ["that is not there has an error at once", "forward", 1, 422, "has no object with that key"],
] as const)("a job with a picture %s", async ([, fate, numDeliveries, status, reason]) => {
  const { queue, start } = createQueue({ JOB_MAX_DELIVERIES: "2" });
  s3.decide(({ path }) => (path.includes("/pictures/") ? fate : "forward"));
  await using _ = await start();
  const job = await queue.add("job", askAbout(`s3://${bucket}/pictures/${randomUUID()}.png`));
  await expect.poll(() => stateOf(queue, job.id), { timeout: SLOW_MS }).toBe("completed");
  s3.decide(() => "forward");
  const { attemptsStarted, returnvalue } = (await queue.getJob(job.id ?? "")) ?? {};
  expect(attemptsStarted).toBe(numDeliveries);
  const error = { code: "image_unreachable", message: expect.stringContaining(reason) as string };
  expect(returnvalue).toMatchObject({ response: { status_code: status, body: { error } } });
});

test("a service stops while its queue does not answer", { timeout: SLOW_MS }, async () => {
  const paused = await startRedisServer();
  onTestFinished(() => paused.kill());
  const { queue, start } = createQueue({}, paused);
  s3.decide(() => "hold");
  const service = await start();
  await queue.add("job", short);
  await expect.poll(() => queue.getActiveCount(), { timeout: SLOW_MS }).toBe(1);
  paused.pause();
  await service[Symbol.asyncDispose]();
  expect(service.log()).toContain("The queue does not answer; it hands out the jobs again.");
  paused.resume();
  s3.decide(() => "forward");
  await using _ = await start();
  await expect.poll(() => queue.getCompletedCount(), { timeout: SLOW_MS }).toBe(1);
});

test("a queue that cannot be opened is logged once, however often it is tried", async () => {
  let numConnections = 0;
  const refusing = createServer((socket) => {
    numConnections += 1;
    socket.destroy();
  }).listen(0, "127.0.0.1");
  await once(refusing, "listening");
  onTestFinished(() => void refusing.close());
  await using service = await startService({
    JOB_SOURCE: `nats://127.0.0.1:${(refusing.address() as AddressInfo).port}/jobs/workers`,
    BATCH_STORE: "none",
  });
  // Each try connects once, so two have failed.
  await expect.poll(() => numConnections, { timeout: SLOW_MS }).toBeGreaterThanOrEqual(3);
  expect(service.log().split("Jobs cannot be taken; retrying.")).toHaveLength(2);
});

test("a service stops while its queue cannot be opened", async () => {
  // It accepts connections and says nothing.
  const silent = createServer(() => {}).listen(0, "127.0.0.1");
  await once(silent, "listening");
  onTestFinished(() => void silent.close());
  const connected = once(silent, "connection");
  const service = await startService({
    JOB_SOURCE: `nats://127.0.0.1:${(silent.address() as AddressInfo).port}/jobs/workers`,
    BATCH_STORE: "none",
  });
  const [socket] = (await connected) as [{ destroy(): void }];
  await service[Symbol.asyncDispose]();
  socket.destroy();
  expect(service.log()).not.toContain("Jobs cannot be taken");
});
