/** Quiescing and resuming, as platforms that take snapshots of memory do around a snapshot. */
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { Queue, QueueEvents } from "bullmq";
import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, test, vi } from "vitest";

import { serve } from "../../functions/serve.ts";
import type { ServeSettings } from "../../functions/serve.ts";
import { createLastingAnswers, withLastingAnswers } from "../support/requests/lasting-answers.ts";
import { startOtlpReceiver } from "../support/servers/otlp-receiver.ts";
import { startRedisServer } from "../support/servers/redis-server.ts";
import type { RedisServer } from "../support/servers/redis-server.ts";
import { testDataHome } from "../support/service/test-data-home.ts";

let redis: RedisServer;
let admin: Redis;
let picture: string;

beforeAll(async () => {
  redis = await startRedisServer();
  admin = new Redis(redis.url);
  const bytes = await readFile(new URL("../../models/fovea-shapes/examples/scene.png", import.meta.url));
  picture = `data:image/png;base64,${bytes.toString("base64")}`;
});

afterAll(async () => {
  await admin.quit();
  await redis.kill();
});

async function start(settings: ServeSettings = {}) {
  const batches = `${testDataHome}/snapshots-${randomUUID()}`;
  const options = { HOST: "127.0.0.1", PORT: 0, ADMIN_KEY: "admin", BATCH_STORE: batches, ...settings };
  const service = await serve(options);
  await service.ready;
  const baseUrl = `http://127.0.0.1:${service.port}`;
  const post = (path: string, { key = "admin", body = {} }: { readonly key?: string; readonly body?: object } = {}) =>
    fetch(`${baseUrl}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
      body: JSON.stringify(body),
    });
  return {
    service,
    baseUrl,
    post,
    ask: () => post("/v1/chat/completions", { body: { messages: [aboutPicture()], max_tokens: 2, temperature: 0 } }),
    statusOf: async (path: string) => (await fetch(`${baseUrl}${path}`)).status,
  };
}

function aboutPicture() {
  const content = [
    { type: "image_url", image_url: { url: picture } },
    { type: "text", text: "Describe the picture." },
  ];
  return { role: "user", content };
}

/** Connections to Redis, without this test's own. */
async function numConnections(own = 1): Promise<number> {
  const list = (await admin.client("LIST")) as string;
  return list.trim().split("\n").length - own;
}

test("a quiesced service has no connections and is not ready; a resumed one works as before", async () => {
  const name = `jobs-${randomUUID()}`;
  const jobs = `${redis.url}?queue=${name}`;
  const { service, post, ask, statusOf } = await start({ REDIS_URL: redis.url, JOB_SOURCE: jobs });
  await using _ = service;
  const before = await (await ask()).text();
  await expect.poll(() => numConnections()).toBeGreaterThan(1);

  const quiesced = await post("/admin/quiesce");
  expect(await quiesced.json()).toMatchObject({ status: "quiesced", clean: true });
  expect(quiesced.headers.get("connection")).toBe("close");
  await expect.poll(() => numConnections()).toBe(0);
  const refused = await ask();
  expect(refused.status).toBe(503);
  expect(await refused.json()).toMatchObject({ error: { code: "model_loading", message: /quiesced/ } });
  expect([await statusOf("/health"), await statusOf("/ping"), await statusOf("/livez")]).toEqual([503, 503, 200]);
  expect((await (await post("/admin/quiesce")).json()) as object).toMatchObject({ status: "quiesced", clean: true });

  expect(await (await post("/admin/resume")).json()).toEqual({ status: "ready" });
  expect(await statusOf("/health")).toBe(200);
  await expect.poll(() => numConnections()).toBeGreaterThan(1);
  const after = (await (await ask()).json()) as { readonly choices: unknown };
  expect(after.choices).toEqual((JSON.parse(before) as typeof after).choices);
  const queue = new Queue(name, { connection: { url: redis.url } });
  const events = new QueueEvents(name, { connection: { url: redis.url } });
  const job = await queue.add("chat", { messages: [{ role: "user", content: "Hello" }], max_tokens: 2 });
  expect(await job.waitUntilFinished(events)).toMatchObject({ response: { status_code: 200 } });
  await Promise.all([queue.close(), events.close()]);
  expect(await (await post("/admin/resume")).json()).toEqual({ status: "ready" });
});

test("a job in progress goes back to its queue, and is completed once after the snapshot", async () => {
  const name = `jobs-${randomUUID()}`;
  const queue = new Queue(name, { connection: { url: redis.url } });
  const events = new QueueEvents(name, { connection: { url: redis.url } });
  const source = { JOB_SOURCE: `${redis.url}?queue=${name}`, SHUTDOWN_GRACE_SECONDS: 0 };
  const { service, post } = await start({ ...source, ...withLastingAnswers });
  await using _ = service;
  await using answers = await createLastingAnswers();
  const job = await queue.add("chat", { messages: [{ role: "user", content: "Hello" }], n: 1, ...answers.fields });
  await expect.poll(async () => job.getState()).toBe("active");
  await post("/admin/quiesce");
  expect(await job.getState()).toBe("waiting");
  expect(await queue.getActiveCount()).toBe(0);

  await answers.finish();
  await post("/admin/resume");
  expect(await job.waitUntilFinished(events)).toMatchObject({ response: { status_code: 200 } });
  expect(await queue.getCompletedCount()).toBe(1);
  expect(await queue.getFailedCount()).toBe(0);
  await Promise.all([queue.close(), events.close()]);
});

test("with a hold, requests of the time of the snapshot wait for the end of it", async () => {
  const { service, post, ask, baseUrl } = await start({ COLD_START_HOLD_SECONDS: 200 });
  await using _ = service;
  await post("/admin/quiesce");
  const answer = ask();
  const numHeld = async () =>
    /^fovea_http_requests_held\S* (\d+)$/m.exec(await (await fetch(`${baseUrl}/metrics`)).text())?.[1];
  await expect.poll(numHeld).toBe("1");
  await post("/admin/resume");
  expect((await answer).status).toBe(200);
});

test("batches resume after a snapshot", async () => {
  const { service, post, baseUrl } = await start();
  await using _ = service;
  await post("/admin/quiesce");
  await post("/admin/resume");
  const line = {
    custom_id: "a",
    method: "POST",
    url: "/v1/chat/completions",
    body: { messages: [aboutPicture()], max_tokens: 2 },
  };
  const form = new FormData();
  form.set("purpose", "batch");
  form.set("file", new Blob([JSON.stringify(line)]), "in.jsonl");
  const file = (await (await fetch(`${baseUrl}/v1/files`, { method: "POST", body: form })).json()) as {
    readonly id: string;
  };
  const created = await post("/v1/batches", {
    body: { input_file_id: file.id, endpoint: "/v1/chat/completions", completion_window: "24h" },
  });
  const { id } = (await created.json()) as { readonly id: string };
  const statusOf = async () =>
    ((await (await fetch(`${baseUrl}/v1/batches/${id}`)).json()) as { readonly status: string }).status;
  await expect.poll(statusOf).toBe("completed");
});

test("spans reach the collector before the snapshot", async () => {
  await using receiver = await startOtlpReceiver();
  const { service, post, ask } = await start({
    OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
    OTEL_EXPORTER_OTLP_PROTOCOL: "http/json",
    OTEL_BSP_SCHEDULE_DELAY: 600_000,
    OTEL_METRICS_EXPORTER: "none",
  });
  await using _ = service;
  await ask();
  expect(receiver.spans()).toEqual([]);
  await post("/admin/quiesce");
  const names = () => receiver.spans().map(({ name }) => name);
  expect(names()).toContain("POST /v1/chat/completions");
  await expect.poll(() => receiver.numConnections()).toBe(0);
  const numBefore = names().length;
  await post("/admin/resume");
  await ask();
  await service.close();
  expect(names().slice(numBefore)).toContain("POST /v1/chat/completions");
});

test("a collector that never answers delays no snapshot, and its connections are closed", async () => {
  const silent = createServer((request) => void request.resume());
  const open = new Set<Socket>();
  silent.on("connection", (socket: Socket) => {
    open.add(socket);
    socket.on("close", () => open.delete(socket));
  });
  silent.listen(0, "127.0.0.1");
  await once(silent, "listening");
  const { service, post, ask } = await start({
    OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${(silent.address() as AddressInfo).port}`,
    OTEL_BSP_SCHEDULE_DELAY: 1,
    OTEL_EXPORTER_OTLP_TIMEOUT: 600_000,
  });
  await using _ = service;
  await ask();
  await expect.poll(() => open.size).toBeGreaterThan(0);
  const quiesced = await post("/admin/quiesce");
  expect(await quiesced.json()).toMatchObject({ status: "quiesced", clean: true });
  await expect.poll(() => open.size).toBe(0);
  await post("/admin/resume");
  await ask();
  await expect.poll(() => open.size).toBeGreaterThan(0);
  await service.close();
  silent.close();
});

test("processes that are restored from one snapshot have traces and an instance id of their own", async () => {
  await using receiver = await startOtlpReceiver();
  const { service, post, ask } = await start({
    OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
    OTEL_EXPORTER_OTLP_PROTOCOL: "http/json",
    OTEL_BSP_SCHEDULE_DELAY: 50,
    OTEL_METRICS_EXPORTER: "none",
  });
  await using _ = service;
  const traces = () => receiver.spans().filter(({ name }) => name === "POST /v1/chat/completions");
  // A snapshot has the state of this generator, so every restored process draws the same numbers.
  const random = vi.spyOn(Math, "random").mockReturnValue(0.5);
  const instances: unknown[] = [];
  for (const number of [1, 2]) {
    await post("/admin/quiesce");
    await post("/admin/resume");
    await ask();
    await expect.poll(() => traces().length).toBe(number);
    instances.push(receiver.resource()["service.instance.id"]);
  }
  random.mockRestore();
  expect(new Set(traces().map(({ traceId }) => traceId)).size).toBe(2);
  expect(new Set(traces().map(({ spanId }) => spanId)).size).toBe(2);
  expect(new Set(instances).size).toBe(2);
});

test("the routes need their own key, and do not exist without one", async () => {
  const { service, post } = await start({ API_KEY: "key" });
  await using _ = service;
  for (const path of ["/admin/quiesce", "/admin/resume"]) expect((await post(path, { key: "key" })).status).toBe(401);
  expect((await post("/admin/resume")).status).toBe(200);
  await using open = (await start({ ADMIN_KEY: undefined })).service;
  const response = await fetch(`http://127.0.0.1:${open.port}/admin/quiesce`, { method: "POST" });
  expect(response.status).toBe(404);
});

test("a quiesced service can be closed", async () => {
  const { service, post } = await start({ REDIS_URL: redis.url });
  await post("/admin/quiesce");
  expect(await service.close()).toBe(true);
});
