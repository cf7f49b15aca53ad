import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { Queue } from "bullmq";
import { afterAll, beforeAll, expect, test } from "vitest";

import { startWebServer } from "../../engine/images/web-server.ts";
import { startOtlpReceiver } from "../../support/servers/otlp-receiver.ts";
import type { OtlpReceiver, ReceivedSpan } from "../../support/servers/otlp-receiver.ts";
import { startRedisServer } from "../../support/servers/redis-server.ts";
import { startCli } from "../../support/service/cli-process.ts";
import { startService } from "../../support/service/running-service.ts";
import type { RunningService } from "../../support/service/running-service.ts";

let receiver: OtlpReceiver;
let picture: string;

beforeAll(async () => {
  receiver = await startOtlpReceiver();
  const bytes = await readFile(new URL("../../../models/fovea-shapes/examples/scene.png", import.meta.url));
  picture = `data:image/png;base64,${bytes.toString("base64")}`;
});

afterAll(() => receiver[Symbol.asyncDispose]());

const settings = (url: string) => ({
  OTEL_EXPORTER_OTLP_ENDPOINT: url,
  OTEL_EXPORTER_OTLP_PROTOCOL: "http/json",
  OTEL_METRICS_EXPORTER: "none",
  OTEL_BSP_SCHEDULE_DELAY: "50",
});

function ask({ baseUrl }: RunningService, body: object, headers: Readonly<Record<string, string>> = {}) {
  return fetch(`${baseUrl}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify({ max_tokens: 3, temperature: 0, ignore_eos: true, ...body }),
  });
}

function aboutPicture(): object {
  const content = [
    { type: "image_url", image_url: { url: picture } },
    { type: "text", text: "Describe the picture." },
  ];
  return { messages: [{ role: "user", content }] };
}

const newTrace = () => {
  const traceId = randomUUID().replaceAll("-", "");
  const spanId = "00f067aa0ba902b7";
  return { traceId, spanId, traceparent: `00-${traceId}-${spanId}-01` };
};

/** The spans of a trace by name, once the one of the whole request has arrived. */
async function spansOf(traceId: string, whole: string): Promise<ReadonlyMap<string, ReceivedSpan>> {
  const find = () => receiver.spans().filter((span) => span.traceId === traceId);
  await expect.poll(() => find().map(({ name }) => name)).toContain(whole);
  return new Map(find().map((span) => [span.name, span]));
}

const chat = "POST /v1/chat/completions";

test("a request about a picture is a span of the caller's trace, with a span for each of its stages", async () => {
  await using service = await startService(settings(receiver.url));
  const { traceId, spanId, traceparent } = newTrace();
  const response = await ask(service, aboutPicture(), { traceparent, tracestate: "vendor=1" });
  const answer = (await response.json()) as { readonly id: string; readonly usage: { readonly prompt_tokens: number } };
  const spans = await spansOf(traceId, chat);
  const whole = spans.get(chat)!;
  expect(whole).toMatchObject({ parentSpanId: spanId, kind: 2, statusCode: 0 });
  expect(whole.attributes).toMatchObject({
    "http.request.method": "POST",
    "http.route": "/v1/chat/completions",
    "http.response.status_code": 200,
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "fovea",
    "gen_ai.request.model": "fovea-shapes",
    "gen_ai.request.temperature": 0,
    "gen_ai.request.max_tokens": 3,
    "gen_ai.response.id": answer.id,
    "gen_ai.response.model": "fovea-shapes",
    "gen_ai.response.finish_reasons": ["length"],
    "gen_ai.usage.input_tokens": answer.usage.prompt_tokens,
    "gen_ai.usage.output_tokens": 3,
    "fovea.images": 1,
  });
  const stages = ["parse", "fetch", "processor_cache", "image_processing", "queue", "prefill", "decode"];
  expect([...spans.keys()].toSorted()).toEqual([chat, ...stages].toSorted());
  for (const [index, name] of stages.entries()) {
    const span = spans.get(name)!;
    expect(span.parentSpanId, name).toBe(whole.spanId);
    // Rounded to microseconds by some clocks.
    expect(span.startMs, name).toBeGreaterThanOrEqual(whole.startMs - 1);
    expect(span.endMs, name).toBeGreaterThanOrEqual(span.startMs);
    expect(span.endMs, name).toBeLessThanOrEqual(whole.endMs + 1);
    const before = spans.get(stages[index - 1] ?? "parse")!;
    expect(span.startMs, name).toBeGreaterThanOrEqual(before.startMs);
  }
  expect(spans.get("fetch")?.attributes).toMatchObject({ "url.scheme": "data" });
  expect(spans.get("processor_cache")?.attributes).toEqual({ "fovea.cache.hits": 0, "fovea.cache.misses": 1 });
  expect(spans.get("decode")?.attributes).toEqual({ "gen_ai.usage.output_tokens": 3 });
  expect(receiver.resource()).toMatchObject({ "service.name": "fovea" });
  expect(service.log()).toContain(`"traceId":"${traceId}"`);
  // Pictures and texts stay here.
  expect(JSON.stringify(receiver.spans())).not.toMatch(/Describe|base64/);
});

test("a cached picture is a hit and is not processed again; a stream ends with its last chunk", async () => {
  await using service = await startService(settings(receiver.url));
  await (await ask(service, aboutPicture())).text();
  const { traceId, traceparent } = newTrace();
  await (await ask(service, { ...aboutPicture(), stream: true }, { traceparent })).text();
  const spans = await spansOf(traceId, chat);
  expect(spans.get("processor_cache")?.attributes).toEqual({ "fovea.cache.hits": 1, "fovea.cache.misses": 0 });
  expect(spans.has("image_processing")).toBe(false);
  expect(spans.get(chat)?.attributes).toMatchObject({ "gen_ai.usage.output_tokens": 3 });
  expect(spans.get("decode")!.endMs).toBeLessThanOrEqual(spans.get(chat)!.endMs + 1);
});

const platformForms: readonly (readonly [platform: string, path: string, toBody: (body: object) => object])[] = [
  ["Vertex AI", "/predict", (body) => ({ instances: [body, body] })],
  ["Replicate", "/predictions", (body) => ({ input: body })],
  [
    "KServe",
    "/v2/models/fovea-shapes/infer",
    (body) => ({ inputs: [{ name: "request", shape: [1], datatype: "BYTES", data: [JSON.stringify(body)] }] }),
  ],
  ["SageMaker", "/invocations", (body) => body],
];

test.for(platformForms)(
  "a request in the form of %s has the log line, the attributes and the stages of any other",
  async ([, path, toBody]) => {
    const environment = { ...settings(receiver.url), AIP_PREDICT_ROUTE: "/predict" };
    await using service = await startService(environment);
    const { traceId, traceparent } = newTrace();
    const body = toBody({ ...aboutPicture(), max_tokens: 3, temperature: 0, ignore_eos: true });
    const response = await fetch(service.baseUrl + path, {
      method: "POST",
      headers: { "content-type": "application/json", traceparent },
      body: JSON.stringify(body),
    });
    expect(response.status, await response.text()).toBe(200);
    const numBodies = path === "/predict" ? 2 : 1;
    const name = `POST ${path.replace("fovea-shapes", ":model{.+}")}`;
    const spans = await spansOf(traceId, name);
    const whole = spans.get(name)!;
    expect(whole.attributes).toMatchObject({
      "gen_ai.operation.name": "chat",
      "gen_ai.request.max_tokens": 3,
      "gen_ai.response.finish_reasons": ["length"],
      "gen_ai.usage.output_tokens": 3 * numBodies,
      "fovea.images": numBodies,
    });
    for (const stage of ["parse", "fetch", "queue", "prefill", "decode"]) {
      expect(spans.get(stage)?.parentSpanId, stage).toBe(whole.spanId);
    }
    const lines = service.log().split("\n");
    const line = JSON.parse(lines.find((text) => text.includes(traceId))!) as object;
    expect(line).toMatchObject({
      completionTokens: 3 * numBodies,
      promptTokens: whole.attributes["gen_ai.usage.input_tokens"],
      timeToFirstTokenMs: expect.any(Number),
      finishReason: "length",
    });
    // The answers of several bodies have an id each.
    expect("id" in line).toBe(numBodies === 1);
  },
);

test("a request without a trace starts one, an invalid traceparent is ignored, and probes have no spans", async () => {
  await using service = await startService(settings(receiver.url));
  const numBefore = receiver.spans().length;
  await fetch(`${service.baseUrl}/health`);
  await fetch(`${service.baseUrl}/metrics`);
  const invalid = `00-${"0".repeat(32)}-00f067aa0ba902b7-01`;
  await ask(service, { messages: [] }, { traceparent: invalid });
  await expect
    .poll(() =>
      receiver
        .spans()
        .slice(numBefore)
        .map(({ name }) => name),
    )
    .toEqual([chat]);
  const [span] = receiver.spans().slice(numBefore);
  expect(span).toMatchObject({ parentSpanId: "" });
  expect(span?.traceId).not.toMatch(/^0+$/);
  expect(span?.attributes["http.response.status_code"]).toBe(400);
});

test("a caller that does not sample gets no spans, and neither does OTEL_TRACES_SAMPLER=always_off", async () => {
  await using service = await startService(settings(receiver.url));
  const { traceId, traceparent } = newTrace();
  await ask(service, aboutPicture(), { traceparent: traceparent.replace(/01$/, "00") });
  await using silent = await startService({ ...settings(receiver.url), OTEL_TRACES_SAMPLER: "always_off" });
  const other = newTrace();
  await ask(silent, aboutPicture(), { traceparent: other.traceparent });
  // Later spans have arrived, so these never will.
  const last = newTrace();
  await ask(service, aboutPicture(), { traceparent: last.traceparent });
  await spansOf(last.traceId, chat);
  const traceIds = new Set(receiver.spans().map((span) => span.traceId));
  expect(traceIds.has(traceId)).toBe(false);
  expect(traceIds.has(other.traceId)).toBe(false);
});

test("protobuf, the default, has the same spans", async () => {
  await using service = await startService({
    ...settings(receiver.url),
    OTEL_EXPORTER_OTLP_PROTOCOL: "",
    OTEL_EXPORTER_OTLP_HEADERS: "x-tenant=a%20b,authorization=Basic%20both",
    OTEL_EXPORTER_OTLP_TRACES_HEADERS: "authorization=Basic%20traces",
    OTEL_EXPORTER_OTLP_METRICS_HEADERS: "x-metrics=1",
    OTEL_METRIC_EXPORT_INTERVAL: "86400000",
  });
  const { traceId, spanId, traceparent } = newTrace();
  await ask(service, aboutPicture(), { traceparent });
  const spans = await spansOf(traceId, chat);
  expect(spans.get(chat)?.parentSpanId).toBe(spanId);
  expect(spans.get("prefill")?.parentSpanId).toBe(spans.get(chat)?.spanId);
  const headers = receiver.headers();
  expect(headers).toMatchObject({
    "content-type": "application/x-protobuf",
    "x-tenant": "a b",
    authorization: "Basic traces",
  });
  expect(headers).not.toHaveProperty("x-metrics");
});

test("traces have a protocol of their own, and without a propagator no request continues its caller's", async () => {
  const { OTEL_EXPORTER_OTLP_PROTOCOL: _, ...environment } = settings(receiver.url);
  await using service = await startService({
    ...environment,
    OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: "http/json",
    OTEL_PROPAGATORS: "b3",
    OTEL_LOGS_EXPORTER: "otlp",
  });
  const { traceId, traceparent } = newTrace();
  const numBefore = receiver.spans().length;
  await (await ask(service, { messages: [{ role: "user", content: "a" }] }, { traceparent })).text();
  const find = () => receiver.spans().find(({ name }, index) => index >= numBefore && name === chat);
  await expect.poll(find).toBeDefined();
  expect(find()!.parentSpanId).toBe("");
  expect(find()!.traceId).not.toBe(traceId);
  expect(receiver.headers()["content-type"]).toBe("application/json");
  const warnings = service
    .log()
    .split("\n")
    .filter((line) => line.includes('"level":"warn"'));
  expect(warnings).toEqual([
    expect.stringContaining("OTEL_LOGS_EXPORTER is otlp, but logs are not sent"),
    expect.stringContaining("OTEL_PROPAGATORS has b3, but"),
  ]);
});

test("metrics are those of /metrics, and the convention's under its own names", async () => {
  await using service = await startService({
    ...settings(receiver.url),
    OTEL_TRACES_EXPORTER: "none",
    OTEL_METRICS_EXPORTER: "otlp",
    OTEL_METRIC_EXPORT_INTERVAL: "100",
    OTEL_SERVICE_NAME: "shapes",
  });
  await ask(service, aboutPicture());
  const find = (name: string) => receiver.metrics().find((metric) => metric.name === name);
  const firstTokens = () => find("gen_ai.server.time_to_first_token")?.points[0]?.value;
  await expect.poll(firstTokens).toBe(1);
  // An export may come between two tokens.
  const tokens = () => find("vllm:generation_tokens_total")?.points[0]?.value;
  await expect.poll(tokens).toBe(3);
  expect(find("gen_ai.server.time_to_first_token")).toMatchObject({
    unit: "s",
    points: [{ attributes: { "gen_ai.request.model": "fovea-shapes", "gen_ai.provider.name": "fovea" } }],
  });
  expect(find("fovea_start_seconds")?.points.map(({ attributes }) => attributes.phase)).toContain("load");
  expect(receiver.resource()).toMatchObject({ "service.name": "shapes" });
});

test("replicas have ids of their own, and the attributes of the settings come first", async () => {
  const resourceOf = async (environment: Readonly<Record<string, string>>) => {
    await using service = await startService({ ...settings(receiver.url), ...environment });
    const { traceId, traceparent } = newTrace();
    await ask(service, aboutPicture(), { traceparent });
    await spansOf(traceId, chat);
    return receiver.resource();
  };
  const first = await resourceOf({});
  const second = await resourceOf({ OTEL_RESOURCE_ATTRIBUTES: "service.name=shapes" });
  expect(first).toMatchObject({
    "service.name": "fovea",
    "service.instance.id": expect.stringMatching(/^[\da-f-]{36}$/),
  });
  expect(second["service.name"]).toBe("shapes");
  expect(second["service.instance.id"]).not.toBe(first["service.instance.id"]);
  const attributes = "service.name=other,service.instance.id=pod-1";
  expect(await resourceOf({ OTEL_SERVICE_NAME: "shapes", OTEL_RESOURCE_ATTRIBUTES: attributes })).toMatchObject({
    "service.name": "shapes",
    "service.instance.id": "pod-1",
  });
});

test("a job of a queue continues the trace of its sender, beside the message or in it", async () => {
  const redis = await startRedisServer();
  const name = `jobs-${randomUUID()}`;
  const queue = new Queue(name, { connection: { url: redis.url } });
  try {
    await using _ = await startService({ ...settings(receiver.url), JOB_SOURCE: `${redis.url}?queue=${name}` });
    const beside = newTrace();
    const inside = newTrace();
    const job = { ...aboutPicture(), max_tokens: 2, temperature: 0 };
    await queue.add("chat", job, { telemetry: { metadata: JSON.stringify({ traceparent: beside.traceparent }) } });
    await queue.add("chat", { ...job, traceparent: inside.traceparent });
    for (const { traceId, spanId } of [beside, inside]) {
      const spans = await spansOf(traceId, "process job");
      const whole = spans.get("process job")!;
      expect(whole).toMatchObject({ parentSpanId: spanId, kind: 5 });
      expect(whole.attributes).toMatchObject({
        "messaging.operation.type": "process",
        "gen_ai.request.model": "fovea-shapes",
        "gen_ai.usage.output_tokens": 2,
        "http.response.status_code": 200,
      });
      expect(spans.get("decode")?.parentSpanId).toBe(whole.spanId);
    }
  } finally {
    await queue.close();
    await redis.kill();
  }
});

test("a pushed job has its span below that of its request, and its id is not that of an answer", async () => {
  await using service = await startService({ ...settings(receiver.url), JOB_PUSH_SECRET: "secret" });
  const { traceId, traceparent } = newTrace();
  const attributes = { "ce-specversion": "1.0", "ce-id": "1", "ce-source": "/shop", "ce-type": "job.created" };
  const response = await fetch(`${service.baseUrl}/events`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: "Bearer secret", traceparent, ...attributes },
    body: JSON.stringify({ ...aboutPicture(), max_tokens: 2 }),
  });
  expect(response.status, await response.text()).toBe(200);
  const spans = await spansOf(traceId, "POST /events");
  const whole = spans.get("POST /events")!;
  expect(spans.get("process job")).toMatchObject({
    parentSpanId: whole.spanId,
    attributes: { "messaging.message.id": "/shop#1", "gen_ai.usage.output_tokens": 2 },
  });
  expect(whole.attributes["gen_ai.response.id"]).toBeUndefined();
});

test("a collector that is down costs no request, and is named in the log", async () => {
  const down = await startOtlpReceiver();
  const { url } = down;
  await down[Symbol.asyncDispose]();
  await using service = await startService({ ...settings(url), OTEL_EXPORTER_OTLP_TIMEOUT: "200" });
  const response = await ask(service, aboutPicture());
  expect(response.status).toBe(200);
  await expect.poll(() => service.log()).toContain(`"message":"OpenTelemetry has a problem.","collectors":["${url}"]`);
});

test("a collector that accepts messages and never answers does not keep the service from ending", async () => {
  const received = Promise.withResolvers<void>();
  const silent = await startWebServer(() => received.resolve(), null);
  const environment = { ...settings(`http://${silent.host}`), OTEL_METRICS_EXPORTER: "otlp" };
  const service = await startService({ ...environment, OTEL_EXPORTER_OTLP_TIMEOUT: "600000" });
  await (await ask(service, aboutPicture())).text();
  await received.promise;
  await service[Symbol.asyncDispose]();
  expect(service.log()).not.toContain('"level":"error"');
  await silent.stop();
});

test("without a collector, nothing of OpenTelemetry's SDK is loaded", async () => {
  const loaded = async (environment: Readonly<Record<string, string>>): Promise<string> => {
    const NODE_OPTIONS = `--import=${new URL("../../support/service/log-imports.ts", import.meta.url).href}`;
    await using cli = startCli([], { HOST: "127.0.0.1", PORT: "0", NODE_OPTIONS, ...environment });
    await cli.waitForLog("Ready.");
    return cli.stderr();
  };
  const without = await loaded({ OTEL_SERVICE_NAME: "shapes" });
  expect(without).toContain("functions/compose.ts");
  // prom-client brings the API.
  const loadedOfSdk = without.match(/@opentelemetry\/(?!api\/)[\w-]+/g) ?? [];
  expect(loadedOfSdk).toEqual([]);
  expect(await loaded(settings(receiver.url))).toContain("@opentelemetry/sdk-trace");
});
