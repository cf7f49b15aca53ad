/** Jobs through the whole service: real queues, a real bucket, a real webhook and the shipped checkpoint. */
import { createHmac, randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { GetObjectCommand, ListObjectsV2Command, PutObjectCommand } from "@aws-sdk/client-s3";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { createSqsQueue } from "../../support/queues/sqs-queue.ts";
import { createLastingAnswers, endless, withLastingAnswers } from "../../support/requests/lasting-answers.ts";
import type { S3Server } from "../../support/servers/s3-server.ts";
import { startWebhookReceiver } from "../../support/servers/webhook-receiver.ts";
import type { WebhookReceiver } from "../../support/servers/webhook-receiver.ts";
import { startService } from "../../support/service/running-service.ts";
import { bucket, failed, returned, short, startJobPlaces } from "./job-places.ts";
import type { JobPlaces, Result } from "./job-places.ts";

const secret = Buffer.alloc(32, 7);

let places: JobPlaces;
let aws: S3Server;
let hooks: WebhookReceiver;

beforeAll(async () => {
  [places, hooks] = await Promise.all([startJobPlaces(), startWebhookReceiver()]);
  aws = places.aws;
});

afterAll(async () => {
  await hooks[Symbol.asyncDispose]();
  await places[Symbol.asyncDispose]();
});

async function objects(prefix: string): Promise<ReadonlyMap<string, Result>> {
  const { Contents = [] } = await aws.client.send(new ListObjectsV2Command({ Bucket: bucket, Prefix: prefix }));
  const entries = Contents.map(async ({ Key = "" }) => {
    const { Body } = await aws.client.send(new GetObjectCommand({ Bucket: bucket, Key }));
    return [Key, JSON.parse((await Body?.transformToString()) ?? "") as Result] as const;
  });
  return new Map(await Promise.all(entries));
}

describe("forms of messages", () => {
  test("a body of a request, a line of a batch and a chat about a picture are answered like over HTTP", async () => {
    const { queue, start } = await places.startWithQueue();
    await using service = await start();
    const png = (await readFile("models/fovea-shapes/examples/circles.png")).toString("base64");
    const chat = {
      messages: [
        {
          role: "user",
          content: [
            { type: "image_url", image_url: { url: `data:image/png;base64,${png}` } },
            { type: "text", text: "How many shapes are there?" },
          ],
        },
      ],
      temperature: 0,
    };
    const post = async (path: string, body: object): Promise<{ choices: unknown }> =>
      (
        await fetch(`${service.baseUrl}${path}`, {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify(body),
        })
      ).json() as Promise<{ choices: unknown }>;
    const jobs = await Promise.all([
      queue.add("completion", short),
      queue.add("chat", chat),
      queue.add("line", { custom_id: "mine", method: "POST", url: "/v1/completions", body: short }),
      queue.add("body", { body: chat }),
    ]);
    const [completion, answer, line, body] = await Promise.all(jobs.map((job) => returned(queue, job)));
    const expected = await post("/v1/completions", short);
    const expectedChat = await post("/v1/chat/completions", chat);
    expect(completion).toMatchObject({ id: jobs[0].id, custom_id: jobs[0].id, error: null });
    expect(completion!.response!.body.choices).toEqual(expected.choices);
    expect(answer!.response!.body.choices).toEqual(expectedChat.choices);
    expect(body!.response!.body.choices).toEqual(expectedChat.choices);
    expect(line).toMatchObject({ custom_id: "mine", response: { status_code: 200 } });
    expect(line!.response!.body.choices).toEqual(expected.choices);
  });

  test("a message that is no job fails with the reason, and the others are answered", async () => {
    const { queue, start } = await places.startWithQueue({ MAX_BODY_BYTES: "100000", JOB_MAX_DELIVERIES: "2" });
    await using _ = await start();
    const deep = JSON.parse(`${"[".repeat(2000)}${"]".repeat(2000)}`) as unknown;
    const cases: [unknown, RegExp][] = [
      ["text", /must be a JSON object/],
      [null, /must be a JSON object/],
      [[1], /must be a JSON object/],
      [{ prompt: "a", deep }, /nest|level|deep/i],
      [{ prompt: "x".repeat(200_000) }, /bytes; the limit is/],
      [{ custom_id: "c", body: [] }, /body must be an object/],
      [{ custom_id: "c", url: "/v1/moderations", body: short }, /url must be one of/],
      [{ custom_id: "c", body: { ...short, stream: true } }, /stream must be false/],
      [{ prompt: "a", webhook: 7 }, /webhook must be a string/],
      [{ prompt: "a", webhook: "https://example.com/hook" }, /JOB_ALLOWED_TARGETS/],
      [{ prompt: "a", webhook: "file:///etc/passwd" }, /webhook must be/],
      [{ input: "s3://a/b", output: "nowhere" }, /output must be s3/],
      [{ input: "s3://a/b", output: "s3://a/c", inputs: 1 }, /unknown field: inputs/],
    ];
    const good = await queue.add("good", short);
    const jobs = await Promise.all(cases.map(([message]) => queue.add("bad", message)));
    for (const [index, job] of jobs.entries()) {
      const result = await failed(queue, job);
      expect(result, JSON.stringify(cases[index]).slice(0, 100)).toMatchObject({ id: job.id, response: null });
      expect(result.error?.message).toMatch(cases[index]![1]);
    }
    expect((await returned(queue, good)).response?.status_code).toBe(200);
  });

  test("a message that can be read but not written as JSON is rejected, and the others are answered", async () => {
    const { queue, start } = await places.startWithQueue();
    await queue.pause();
    const deep = await queue.add("deep", {});
    // BullMQ's own producer cannot write it either.
    const text = `{"prompt": ${"[".repeat(50_000)}${"]".repeat(50_000)}}`;
    const client = new Redis(places.redis.url);
    await client.hset(queue.toKey(deep.id ?? ""), { data: text });
    await client.quit();
    const good = await queue.add("good", short);
    await using _ = await start();
    await queue.resume();
    expect((await failed(queue, deep)).error?.message).toMatch(/levels of lists and objects/);
    expect((await returned(queue, good)).response?.status_code).toBe(200);
  });

  test("a request that HTTP would refuse is completed with its status", async () => {
    const { queue, start } = await places.startWithQueue();
    await using _ = await start();
    const unknown = await queue.add("model", { ...short, model: "another" });
    const wrong = await queue.add("value", { ...short, temperature: -1 });
    expect((await returned(queue, unknown)).response).toMatchObject({ status_code: 404 });
    expect((await returned(queue, wrong)).response).toMatchObject({
      status_code: 400,
      body: { error: { param: "temperature" } },
    });
  });
});

describe("results", () => {
  test("are stored once per job under a key that follows from its id", async () => {
    const prefix = randomUUID();
    const { queue, start } = await places.startWithQueue({ JOB_RESULTS: `s3://${bucket}/${prefix}` });
    await using service = await start();
    const plain = await queue.add("plain", short, { jobId: "order-17" });
    const odd = await queue.add("odd", short, { jobId: "../é/%00" });
    const [result] = [await returned(queue, plain), await returned(queue, odd)];
    const stored = await objects(prefix);
    expect([...stored.keys()].toSorted()).toEqual([
      expect.stringMatching(new RegExp(`^${prefix}/[0-9a-f]{64}\\.json$`)),
      `${prefix}/order-17.json`,
    ]);
    expect(stored.get(`${prefix}/order-17.json`)).toEqual(result);
    expect(service.log()).toContain("Taking jobs.");
  });

  test("that are stored already are returned without another computation", async () => {
    const prefix = randomUUID();
    const earlier = {
      id: "done",
      custom_id: "done",
      response: { status_code: 200, body: { told: "before" } },
      error: null,
    };
    await aws.client.send(
      new PutObjectCommand({ Bucket: bucket, Key: `${prefix}/done.json`, Body: JSON.stringify(earlier) }),
    );
    const { queue, start } = await places.startWithQueue({ JOB_RESULTS: `s3://${bucket}/${prefix}` });
    await using _ = await start();
    const job = await queue.add("again", short, { jobId: "done" });
    expect(await returned(queue, job)).toEqual(earlier);
    expect(await objects(prefix)).toEqual(new Map([[`${prefix}/done.json`, earlier]]));
  });

  test("of a job that is handed out again replace an answer with status 5xx", async () => {
    const prefix = randomUUID();
    const response = { status_code: 503, request_id: "r", body: { error: { code: "out_of_memory" } } };
    const earlier = { id: "busy", custom_id: "busy", response, error: null };
    await aws.client.send(
      new PutObjectCommand({ Bucket: bucket, Key: `${prefix}/busy.json`, Body: JSON.stringify(earlier) }),
    );
    const { queue, start } = await places.startWithQueue({ JOB_RESULTS: `s3://${bucket}/${prefix}` });
    await using _ = await start();
    const job = await queue.add("again", short, { jobId: "busy" });
    const result = await returned(queue, job);
    expect(result.response?.status_code).toBe(200);
    expect(await objects(prefix)).toEqual(new Map([[`${prefix}/busy.json`, result]]));
  });

  test("of jobs with the same id are kept apart by their messages, which the queue may have numbered again", async () => {
    const prefix = randomUUID();
    const settings = { JOB_RESULTS: `s3://${bucket}/${prefix}` };
    const [first, second] = [await places.startWithQueue(settings), await places.startWithQueue(settings)];
    const messages = [
      { custom_id: "a", body: short },
      { custom_id: "b", body: short },
      { custom_id: "b", body: short },
      { custom_id: "c", body: { ...short, max_tokens: "many" } },
      { custom_id: "d", url: "/none", body: short },
    ];
    const answers: (string | null)[] = [];
    for (const [index, message] of messages.entries()) {
      const { queue, start } = index === 0 ? first : second;
      await using _ = await start();
      const job = await queue.add("job", message);
      expect(job.id).toBe("1");
      const isRefused = message.custom_id === "d";
      answers.push((await (isRefused ? failed : returned)(queue, job)).custom_id);
      await queue.obliterate({ force: true });
    }
    expect(answers).toEqual(messages.map(({ custom_id: id }) => id));
    const stored = [...(await objects(prefix)).entries()];
    const ids = stored.map(([, { custom_id: id }]) => id ?? "");
    expect(ids.toSorted()).toEqual(messages.map(({ custom_id: id }) => id).toSorted());
    expect(stored.find(([key]) => key === `${prefix}/1.json`)?.[1].custom_id).toBe("a");
    expect(stored.filter(([key]) => new RegExp(`^${prefix}/[0-9a-f]{64}/1\\.json$`).test(key))).toHaveLength(4);
  });

  test("of a message that is no job are stored once, and each delivery goes to the dead letters", async () => {
    const prefix = randomUUID();
    const { queue, start } = await places.startWithQueue({ JOB_RESULTS: `s3://${bucket}/${prefix}` });
    await using _ = await start();
    const job = await queue.add("bad", { prompt: 7, url: "/none" }, { jobId: "bad" });
    const first = await failed(queue, job);
    // As after a worker that ended between the two.
    await (await queue.getJob("bad"))?.retry("failed", { resetAttemptsStarted: true });
    await expect.poll(async () => (await queue.getJob("bad"))?.attemptsStarted).toBe(1);
    expect(await failed(queue, job)).toEqual(first);
    expect(await objects(prefix)).toEqual(new Map([[`${prefix}/bad.json`, first]]));
  });

  test("of a job that is retried after what it lacked exists replace its refusal", async () => {
    const prefix = randomUUID();
    const folder = `s3://${bucket}/${prefix}`;
    const { queue, start } = await places.startWithQueue({
      JOB_RESULTS: folder,
      JOB_ALLOWED_TARGETS: `${folder}/files`,
    });
    await using _ = await start();
    const message = { input: `${folder}/files/in.jsonl`, output: `${folder}/files/out.jsonl` };
    const job = await queue.add("file", message, { jobId: "file" });
    const stored = async () => (await objects(`${prefix}/file.json`)).get(`${prefix}/file.json`);
    const refused = await failed(queue, job);
    expect(refused.error?.code).toBe("input_not_found");
    expect(await stored()).toEqual(refused);
    const Body = JSON.stringify({ custom_id: "a", method: "POST", url: "/v1/completions", body: short });
    await aws.client.send(new PutObjectCommand({ Bucket: bucket, Key: `${prefix}/files/in.jsonl`, Body }));
    await (await queue.getJob("file"))?.retry("failed");
    const result = await returned(queue, job);
    expect(result.response?.body.request_counts).toEqual({ total: 1, completed: 1, failed: 0 });
    expect(await stored()).toEqual(result);
  });

  test("are signed webhooks, which are tried again after an error", async () => {
    const { queue, start } = await places.startWithQueue({
      JOB_RESULTS: `${hooks.url}/all`,
      JOB_ALLOWED_TARGETS: `${hooks.url}/some`,
      JOB_WEBHOOK_SECRET: `whsec_${secret.toString("base64")}`,
    });
    const before = hooks.received.length;
    let numRefused = 0;
    hooks.answer((_, response) => response.writeHead(numRefused++ === 0 ? 500 : 204).end());
    await using _ = await start();
    const job = await queue.add("hook", { ...short, webhook: `${hooks.url}/some/17` });
    const result = await returned(queue, job);
    hooks.answer(204);
    const received = hooks.received.slice(before);
    expect(received.map(({ path }) => path)).toEqual(["/all", "/all", "/some/17"]);
    for (const { headers, body } of received) {
      expect(JSON.parse(body)).toMatchObject({ type: "fovea.job.finished", data: result });
      const signed = `${headers["webhook-id"] as string}.${headers["webhook-timestamp"] as string}.${body}`;
      const signature = createHmac("sha256", secret).update(signed).digest("base64");
      expect(headers["webhook-signature"]).toBe(`v1,${signature}`);
      expect(headers["webhook-id"]).toBe(job.id);
    }
  });

  test("a webhook that redirects gets nothing at the new address, and the job is kept", async () => {
    const { queue, start } = await places.startWithQueue({ JOB_RESULTS: `${hooks.url}/moved` });
    const before = hooks.received.length;
    hooks.answer((_, response) => response.writeHead(410, { location: `${hooks.url}/elsewhere` }).end());
    const service = await start();
    const { id = "" } = await queue.add("hook", short);
    await expect.poll(() => service.log()).toContain("did not accept the result");
    hooks.answer((_, response) => response.writeHead(302, { location: `${hooks.url}/elsewhere` }).end());
    await service[Symbol.asyncDispose]();
    hooks.answer(204);
    expect(hooks.received.slice(before).every(({ path }) => path === "/moved")).toBe(true);
    expect(await (await queue.getJob(id))?.getState()).not.toBe("completed");
    await using _ = await start();
    await returned(queue, (await queue.getJob(id))!);
  });
});

describe("deliveries", () => {
  test("a job that was handed out too often is rejected", async () => {
    const { queue, start } = await places.startWithQueue({ JOB_MAX_DELIVERIES: "1", JOB_RESULTS: `${hooks.url}/gone` });
    hooks.answer(410);
    await using _ = await start();
    const job = await queue.add("hook", short);
    await expect.poll(() => hooks.received.some(({ path }) => path === "/gone")).toBe(true);
    hooks.answer(204);
    const result = await failed(queue, job);
    expect(result.error?.code).toBe("too_many_deliveries");
  });

  test("a drain gives back all jobs that are not answered", async () => {
    const { queue, start } = await places.startWithQueue(withLastingAnswers);
    const service = await start();
    const jobs = await Promise.all(Array.from({ length: 6 }, () => queue.add("long", { prompt: "a", ...endless })));
    await expect.poll(async () => (await queue.getActiveCount()) > 0).toBe(true);
    await service[Symbol.asyncDispose]();
    const states = await Promise.all(jobs.map(async ({ id = "" }) => (await queue.getJob(id))?.getState()));
    expect(states.filter((state) => state === "active")).toEqual([]);
    expect(states.filter((state) => state === "waiting").length).toBeGreaterThan(0);
    await queue.obliterate({ force: true });
  });

  test("jobs leave room for requests, and are answered beside them", async () => {
    const settings = { MAX_NUM_SEQS: "2", BATCH_MAX_NUM_SEQS: "1", ...withLastingAnswers };
    const { queue, start } = await places.startWithQueue(settings);
    await using answers = await createLastingAnswers();
    await using service = await start();
    const lasting = { prompt: "a", ...answers.fields };
    const jobs = await Promise.all(Array.from({ length: 5 }, () => queue.add("job", lasting)));
    await expect.poll(async () => queue.getActiveCount()).toBe(1);
    const response = await fetch(`${service.baseUrl}/v1/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(short),
    });
    expect(response.status).toBe(200);
    expect(await queue.getActiveCount()).toBe(1);
    await answers.finish();
    for (const job of jobs) await returned(queue, job);
    const metrics = await (await fetch(`${service.baseUrl}/metrics`)).text();
    expect(metrics).toMatch(/^fovea_jobs_total\{outcome="completed",.*\} 5$/m);
    expect(metrics).toMatch(/^fovea_jobs_running\{.*\} 0$/m);
  });
});

test("a rejected message of SQS goes to the dead-letter queue and a good one is deleted", async () => {
  const prefix = randomUUID();
  const queue = await createSqsQueue(aws.endpoint, `jobs-${prefix}`);
  await using _ = await startService({
    JOB_SOURCE: queue.address,
    JOB_RESULTS: `s3://${bucket}/${prefix}`,
    AWS_ENDPOINT_URL_S3: aws.endpoint,
    AWS_REGION: "us-east-1",
    BATCH_STORE: "none",
  });
  await queue.send("{");
  await queue.send(JSON.stringify({ custom_id: "good", body: short }));
  await expect.poll(async () => (await objects(prefix)).size).toBe(2);
  await expect.poll(queue.count).toEqual({ numVisible: 0, numInFlight: 0 });
  expect(await queue.deadLetters()).toEqual(["{"]);
  const results = [...(await objects(prefix)).values()];
  expect(results.map(({ response, error }) => String(response?.status_code ?? error?.code)).toSorted()).toEqual([
    "200",
    "invalid_json",
  ]);
});
