import { describe, expect, test } from "vitest";

import { EngineError } from "../../../engine/index.ts";
import { hang } from "../../support/engine/scripted-engine.ts";
import { chatBody, createTestApp } from "../../support/service/test-app.ts";
import type { TestApp, TestAppOptions } from "../../support/service/test-app.ts";

function stall({ engine }: TestApp, { isLasting }: { readonly isLasting: boolean }): void {
  const logitsProcessor = { name: "steering:Secret", className: "file:///plugins/steering.ts:Secret" };
  engine.state = "stalled";
  engine.stall = { seconds: 120, activity: "logits processor", logitsProcessor, numRequests: 3, isLasting };
}

const states = {
  starting: (options?: TestAppOptions) => {
    const testApp = createTestApp(options);
    testApp.engine.state = "loading";
    return testApp;
  },
  ready: createTestApp,
  stalled: (options?: TestAppOptions) => {
    const testApp = createTestApp(options);
    stall(testApp, { isLasting: false });
    return testApp;
  },
  "stalled for long": (options?: TestAppOptions) => {
    const testApp = createTestApp(options);
    stall(testApp, { isLasting: true });
    return testApp;
  },
  draining: (options?: TestAppOptions) => {
    const testApp = createTestApp(options);
    void testApp.service.drain(0);
    return testApp;
  },
  failed: (options?: TestAppOptions) => {
    const testApp = createTestApp(options);
    testApp.engine.state = "failed";
    return testApp;
  },
} satisfies Record<string, (options?: TestAppOptions) => TestApp>;

describe("web pages of other origins", () => {
  const preflight = {
    method: "OPTIONS",
    headers: { origin: "https://a.example", "access-control-request-method": "POST" },
  };
  const allowed = "access-control-allow-origin";

  test("may read nothing unless their origin is allowed", async () => {
    const { app } = createTestApp();
    const response = await app.request("/v1/models", { headers: { origin: "https://a.example" } });
    expect(response.headers.has(allowed)).toBe(false);
    expect((await app.request("/v1/chat/completions", preflight)).status).toBe(405);
  });

  test("may read answers if their origin is allowed, after a preflight without a key", async () => {
    const { app } = createTestApp({ config: { apiKeys: ["secret"], allowedOrigins: ["https://a.example"] } });
    const asked = await app.request("/v1/chat/completions", preflight);
    expect([asked.status, asked.headers.get(allowed)]).toEqual([204, "https://a.example"]);
    const refused = await app.request("/v1/models", { headers: { origin: "https://a.example" } });
    expect([refused.status, refused.headers.get(allowed)]).toEqual([401, "https://a.example"]);
    const exposed = refused.headers.get("access-control-expose-headers")?.split(",");
    expect(exposed).toEqual(expect.arrayContaining(["X-Request-Id", "X-Fovea-Warning", "X-Omitted-Images"]));
    const other = await app.request("/v1/models", { headers: { origin: "https://b.example" } });
    expect(other.headers.has(allowed)).toBe(false);
  });

  test("may send every header that the clients of OpenAI and Anthropic add, and read the service's own", async () => {
    const { app } = createTestApp({ config: { allowedOrigins: ["https://a.example"] } });
    const sent = [
      "authorization",
      "content-type",
      "x-api-key",
      "anthropic-version",
      "x-stainless-os",
      "x-stainless-timeout",
    ];
    const headers = { ...preflight.headers, "access-control-request-headers": sent.join(",") };
    const { headers: answered } = await app.request("/v1/messages", { method: "OPTIONS", headers });
    expect(answered.get("access-control-allow-headers")?.toLowerCase().split(/, */)).toEqual(
      expect.arrayContaining(sent),
    );
    const models = await app.request("/v1/models", { headers: { origin: "https://a.example" } });
    const readable = models.headers.get("access-control-expose-headers")?.toLowerCase().split(/, */);
    expect(readable).toEqual(
      expect.arrayContaining(["x-request-id", "retry-after", "x-fovea-warning", "x-omitted-images"]),
    );
  });
});

test("the loaded logits processors are listed in order, for clients with a key", async () => {
  const { app } = createTestApp({ config: { apiKeys: ["secret"] } });
  expect((await app.request("/v1/logits-processors")).status).toBe(401);
  const response = await app.request("/v1/logits-processors", { headers: { authorization: "Bearer secret" } });
  expect(await response.json()).toEqual({
    object: "list",
    data: [{ id: "steering.target_token:TargetToken", object: "logits_processor" }],
  });
});

test.for<[string, number, number, number, number, number, number]>([
  ["/livez", 200, 200, 200, 503, 200, 500],
  ["/health", 503, 200, 503, 503, 503, 503],
  ["/readyz", 503, 200, 503, 503, 503, 503],
  ["/ping", 503, 200, 200, 503, 503, 500],
  ["/v1/models", 200, 200, 200, 200, 200, 200],
  ["/metrics", 200, 200, 200, 200, 200, 200],
  ["/", 200, 200, 200, 200, 200, 200],
])(
  "GET %s answers %i starting, %i ready, %i stalled, %i stalled for long, %i draining, %i failed",
  async ([path, starting, ready, stalled, stalledForLong, draining, failed]) => {
    const statuses = { starting, ready, stalled, "stalled for long": stalledForLong, draining, failed };
    for (const [state, expected] of Object.entries(statuses) as [keyof typeof statuses, number][]) {
      const response = await states[state]().app.request(path);
      expect([state, response.status]).toEqual([state, expected]);
      expect(response.headers.get("connection")).toBe(state === "draining" ? "close" : null);
    }
  },
);

test("answers of a service that is not ready include Retry-After", async () => {
  const { app, post } = states.starting();
  expect((await app.request("/health")).headers.get("retry-after")).toBe("2");
  const response = await post("/v1/chat/completions", chatBody);
  expect(response.status).toBe(503);
  expect(response.headers.get("retry-after")).toBe("2");
  expect(await response.json()).toMatchObject({ error: { code: "model_loading", type: "server_error" } });
});

test("a stalled service rejects requests, reports it to everyone, and does not reveal the code", async () => {
  const { app, post } = states.stalled();
  const health = await app.request("/health");
  expect(health.headers.get("retry-after")).toBe("2");
  const body = await health.text();
  expect(JSON.parse(body)).toMatchObject({
    status: "stalled",
    message: expect.stringMatching(/^One step of the engine has taken more than 120 s/),
  });
  expect(body).not.toMatch(/steering|plugins/);
  const response = await post("/v1/chat/completions", chatBody);
  expect([response.status, response.headers.get("retry-after")]).toEqual([503, "2"]);
  expect(await response.json()).toMatchObject({ error: { code: "engine_stalled", type: "server_error" } });
});

test("a draining service rejects new requests and closes their connections", async () => {
  const response = await states.draining().post("/v1/completions", { prompt: "a" });
  expect(response.status).toBe(503);
  expect(response.headers.get("connection")).toBe("close");
  expect(await response.json()).toMatchObject({ error: { code: "shutting_down" } });
});

test("a failed engine is a 500 without details", async () => {
  const response = await states.failed().post("/v1/chat/completions", chatBody);
  expect(response.status).toBe(500);
  expect(await response.json()).toMatchObject({ error: { code: "internal_error" } });
});

test("RunPod's status for a worker that is starting is 204", async () => {
  const { app } = states.starting({ config: { pingStatusWhileStarting: 204 } });
  const response = await app.request("/ping", { method: "POST" });
  expect(response.status).toBe(204);
  expect(await response.text()).toBe("");
});

test("models are listed, and found individually by all their names", async () => {
  const { app } = createTestApp({ config: { servedModelNames: ["a", "org/b"] } });
  const list = (await (await app.request("/v1/models")).json()) as { data: unknown[] };
  const card = (id: string) => ({
    id,
    object: "model",
    created: expect.any(Number),
    owned_by: "fovea",
    root: id,
    parent: null,
    max_model_len: 512,
  });
  expect(list).toEqual({ object: "list", data: [card("a"), card("org/b")] });
  expect(await (await app.request("/v1/models/org/b")).json()).toEqual(card("org/b"));
  const missing = await app.request("/v1/models/c");
  expect(missing.status).toBe(404);
  expect(await missing.json()).toMatchObject({ error: { code: "model_not_found", param: "model" } });
});

describe("with API keys", () => {
  const { app, post } = createTestApp({ config: { apiKeys: ["key-one", "key-two"] } });

  test.for([
    [undefined, 401],
    ["key-one", 401],
    ["Bearer", 401],
    ["Bearer wrong", 401],
    ["Bearer key-on", 401],
    ["Basic key-one", 401],
    ["Bearer key-one key-two", 401],
    ["Bearer key-one", 200],
    ["bearer  key-two", 200],
  ] as const)("%s is answered with %i", async ([authorization, status]) => {
    const headers: Record<string, string> = authorization === undefined ? {} : { authorization };
    const response = await post("/v1/chat/completions", chatBody, headers);
    expect(response.status).toBe(status);
    expect(response.headers.get("www-authenticate")).toBe(status === 401 ? "Bearer" : null);
  });

  const publicRoutes = [
    "GET /",
    "GET /execution-parameters",
    "GET /health",
    "GET /health-check",
    "GET /livez",
    "GET /load",
    "GET /metrics",
    "GET /ping",
    "GET /playground",
    "GET /playground/:file",
    "GET /playground/examples/:file",
    "GET /playground/service.json",
    "GET /readyz",
    "GET /v2",
    "GET /v2/health/live",
    "GET /v2/health/ready",
    "GET /v2/models/:model{.+}/ready",
    "GET /v2/models/:model{.+}/versions/:version/ready",
    "GET /version",
    "POST /ping",
  ];
  const routes = app.routes
    .filter(({ method, path }) => !(method === "ALL" && path === "/*"))
    .map(({ method, path }) => ({ method, path, name: `${method} ${path}` }));

  test("every route but the public ones answers 401 without a key", async () => {
    const openRoutes: string[] = [];
    for (const { method, path, name } of routes) {
      const { status } = await app.request(path.replaceAll(/:\w+(\{[^}]*\})?/g, "x"), { method });
      if (status !== 401) openRoutes.push(name);
    }
    expect(openRoutes.toSorted()).toEqual(publicRoutes);
    expect(routes.length).toBeGreaterThan(publicRoutes.length);
  });

  test("a path without a route is 404 and a wrong method 405, with or without a key", async () => {
    for (const headers of [{}, { authorization: "Bearer key-one" }]) {
      const missing = await app.request("/v1/unknown", { headers });
      expect(missing.status).toBe(404);
      expect(await missing.json()).toMatchObject({
        error: { message: "There is no /v1/unknown. GET / lists the routes." },
      });
      expect((await app.request("/v1/chat/completions", { headers })).status).toBe(405);
    }
  });

  test("GET / lists every route of /v1 that needs no parameter", async () => {
    const { routes: listed } = (await (await app.request("/")).json()) as { readonly routes: Record<string, string> };
    const paths = new Set(routes.map(({ path }) => path).filter((path) => /^\/v1\/[^:]+$/.test(path)));
    expect(Object.values(listed)).toEqual(expect.arrayContaining([...paths]));
  });

  test("an answer without a key has OpenAI's shape", async () => {
    expect(await (await app.request("/v1/pipelines")).json()).toEqual({
      error: {
        message: "Send an API key: Authorization: Bearer <key>.",
        type: "authentication_error",
        param: null,
        code: "invalid_api_key",
      },
    });
  });

  test("probes and metrics need no key", async () => {
    for (const path of ["/health", "/livez", "/readyz", "/ping", "/metrics", "/"]) {
      expect((await app.request(path)).status).toBe(200);
    }
  });
});

describe("request ids", () => {
  test.for([
    ["abc-123", true],
    ["a/b:c=d+e.f_g", true],
    ["x".repeat(129), false],
    ["with space", false],
    ['quote"', false],
  ] as const)("%s echoed: %s", async ([id, isEchoed]) => {
    const { app } = createTestApp();
    for (const path of ["/livez", "/nowhere", "/v1/models"]) {
      const echoed = (await app.request(path, { headers: { "x-request-id": id } })).headers.get("x-request-id");
      expect(echoed === id).toBe(isEchoed);
      expect(echoed).toMatch(/^\S+$/);
    }
  });

  test("are also in streams", async () => {
    const response = await createTestApp().post("/v1/chat/completions", { ...chatBody, stream: true });
    expect(response.headers.get("x-request-id")).toMatch(/^[0-9a-f-]{36}$/);
    await response.text();
  });
});

test("the access log has one line per request, with figures and without bodies or keys", async () => {
  const { post, app, log } = createTestApp({ config: { apiKeys: ["hunter2"] } });
  const headers = { authorization: "Bearer hunter2", "x-request-id": "r1" };
  const response = await post("/v1/chat/completions?token=hunter2", { ...chatBody, stream: true }, headers);
  await response.text();
  await app.request("/health");
  expect(log).toEqual([
    {
      time: expect.any(String),
      level: "info",
      message: "request",
      requestId: "r1",
      method: "POST",
      path: "/v1/chat/completions",
      status: 200,
      durationMs: expect.any(Number),
      id: expect.stringMatching(/^chatcmpl-/),
      model: "tiny",
      images: 0,
      stream: true,
      timeToFirstTokenMs: expect.any(Number),
      promptTokens: 5,
      completionTokens: 3,
      finishReason: "stop",
    },
    expect.objectContaining({ level: "debug", path: "/health", status: 200 }),
  ]);
  expect(JSON.stringify(log)).not.toMatch(/hunter2|Hello/);
});

test("probes are logged at debug, whatever their method and path", async () => {
  const health = "/v1/endpoints/1/deployedModels/2";
  const { app, log } = createTestApp({ config: { vertexRoutes: { health, predict: `${health}:predict` } } });
  const probes = ["GET /health", "HEAD /health", "POST /ping", `GET ${health}`, `HEAD ${health}`, "GET /metrics"];
  const others = ["GET /v1/models", "POST /health", `POST ${health}:predict`, "HEAD /v1/models"];
  for (const request of [...probes, ...others]) {
    const [method, path] = request.split(" ") as [string, string];
    await (await app.request(path, { method })).text();
  }
  const loggedAt = (level: string) =>
    log.filter((line) => line.level === level).map(({ method, path }) => `${String(method)} ${String(path)}`);
  expect(loggedAt("debug")).toEqual(probes);
  expect(loggedAt("info")).toEqual(others);
});

test("counters have a series for each value of their label before the first event", async () => {
  const { app } = createTestApp();
  const text = await (await app.request("/metrics")).text();
  const valuesOf = (name: string, label: string) =>
    Array.from(text.matchAll(new RegExp(`^${name}\\{${label}="(\\w+)",.*\\} 0$`, "gm")), ([, value]) => value);
  const reasons = ["stop", "length", "abort", "error", "repetition"];
  expect(valuesOf("vllm:request_success_total", "finished_reason")).toEqual(reasons);
  expect(valuesOf("fovea_jobs_total", "outcome")).toEqual(["completed", "rejected", "released", "lost"]);
  expect(valuesOf("fovea_batches_total", "status")).toEqual(["failed", "completed", "expired", "cancelled"]);
  expect(valuesOf("fovea_batch_lines_total", "outcome")).toEqual(["completed", "failed"]);
  expect(valuesOf("fovea_batch_store_removed_total", "kind")).toEqual(["file", "batch", "leftover"]);
});

test("metrics have vLLM's names and count served requests", async () => {
  const { post, app } = createTestApp();
  await post("/v1/chat/completions", chatBody);
  await post("/v1/chat/completions", "{");
  await app.request("/nowhere/at/all");
  const response = await app.request("/metrics");
  expect(response.headers.get("content-type")).toMatch(/^text\/plain; version=0\.0\.4/);
  const text = await response.text();
  const valueOf = (sample: RegExp): number =>
    Number(
      text
        .split("\n")
        .find((line) => sample.test(line))
        ?.split(" ")
        .at(-1),
    );
  expect(valueOf(/^vllm:num_requests_running\{.*model_name="tiny"/)).toBe(3);
  expect(valueOf(/^vllm:spec_decode_num_drafts_total\{/)).toBe(6);
  expect(valueOf(/^vllm:spec_decode_num_draft_tokens_total\{/)).toBe(20);
  expect(valueOf(/^vllm:spec_decode_num_accepted_tokens_total\{/)).toBe(9);
  expect(valueOf(/^vllm:spec_decode_num_accepted_tokens_per_pos_total\{.*position="1"/)).toBe(3);
  expect(valueOf(/^vllm:num_requests_waiting\{/)).toBe(2);
  expect(valueOf(/^vllm:kv_cache_usage_perc\{/)).toBe(0.25);
  expect(valueOf(/^vllm:prompt_tokens_total\{/)).toBe(100);
  expect(valueOf(/^vllm:generation_tokens_total\{/)).toBe(50);
  expect(valueOf(/^fovea_engine_steps_total\{/)).toBe(50);
  expect(valueOf(/^vllm:request_success_total\{.*finished_reason="stop"/)).toBe(1);
  expect(valueOf(/^vllm:time_to_first_token_seconds_count\{/)).toBe(1);
  expect(valueOf(/^vllm:inter_token_latency_seconds_count\{/)).toBe(2);
  expect(valueOf(/^vllm:e2e_request_latency_seconds_count\{/)).toBe(1);
  expect(valueOf(/^http_requests_total\{.*handler="\/v1\/chat\/completions",method="POST",status="200"/)).toBe(1);
  expect(valueOf(/^http_requests_total\{.*handler="\/v1\/chat\/completions",method="POST",status="400"/)).toBe(1);
  expect(valueOf(/^http_requests_total\{.*handler="other",method="GET",status="404"/)).toBe(1);
});

test("a drain waits for requests in progress, and ends those that exceed its grace", async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  const quick = createTestApp({ script: ["a", promise, "b"] });
  const answer = quick.post("/v1/chat/completions", { ...chatBody, stream: true });
  const text = (await answer).text();
  const drained = quick.service.drain(60_000);
  resolve();
  expect(await text).toMatch(/"content":"b"[\s\S]*\[DONE\]\n\n$/);
  expect(await drained).toBe(true);

  const endless = createTestApp({ script: ["a", hang] });
  const cut = (await endless.post("/v1/chat/completions", { ...chatBody, stream: true })).text();
  const whole = endless.post("/v1/chat/completions", chatBody);
  await expect.poll(() => endless.engine.numRunning).toBe(2);
  expect(await endless.service.drain(1)).toBe(false);
  expect(await cut).toMatch(/"code":"shutting_down"\}\}\n\ndata: \[DONE\]\n\n$/);
  expect((await whole).status).toBe(503);
  expect(endless.engine.numRunning).toBe(0);
});

test("an answer that a drain finds in progress closes its connection", async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  const { engine, post, service } = createTestApp({ script: ["a", promise, "b"] });
  const answer = post("/v1/chat/completions", chatBody);
  await expect.poll(() => engine.numRunning).toBe(1);
  const drained = service.drain(60_000);
  resolve();
  const { status, headers } = await answer;
  expect([status, headers.get("connection")]).toEqual([200, "close"]);
  await drained;
});

test("a service whose GPU is lost says so, asks for a restart, and sends its clients elsewhere", async () => {
  const { app, engine, post } = createTestApp();
  engine.state = "failed";
  engine.failure = new EngineError("device_lost", "CUDA failure 719: unspecified launch failure ; hostname=secret");
  for (const [path, status] of [
    ["/health", 503],
    ["/livez", 500],
    ["/ping", 500],
  ] as const) {
    const response = await app.request(path);
    expect([path, response.status]).toEqual([path, status]);
    const message = "The GPU is lost; only a new process can use it.";
    expect(await response.json()).toEqual({ status: "failed", message });
  }
  const response = await post("/v1/chat/completions", chatBody);
  expect([response.status, response.headers.get("retry-after")]).toEqual([503, "2"]);
  const body = await response.text();
  expect(JSON.parse(body)).toMatchObject({ error: { code: "device_lost", type: "server_error" } });
  expect(body).not.toContain("secret");
});
