/**
 * Replicate's director as the caller of the container: Cog's HTTP form, read on 2026-11-22 in docs/http.md of
 * https://github.com/replicate/cog at 02b7f42.
 */
import { describe, expect, test } from "vitest";

import { hang } from "../../../support/engine/scripted-engine.ts";
import { chatBody, createTestApp, serveApp } from "../../../support/service/test-app.ts";
import type { TestApp } from "../../../support/service/test-app.ts";

function put({ app }: TestApp, id: string, headers: Record<string, string> = {}): Promise<Response> {
  return Promise.resolve(
    app.request(`/predictions/${id}`, {
      method: "PUT",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify({ input: chatBody }),
    }),
  );
}

interface CogEvent {
  readonly type: string;
  readonly [field: string]: unknown;
}

async function eventsOf(response: Response): Promise<CogEvent[]> {
  const text = await response.text();
  return [...text.matchAll(/^event: (\w+)\ndata: (.*)$/gm)].map(([, name, data]) => {
    const event = JSON.parse(data!) as CogEvent;
    expect(event.type).toBe(name);
    return event;
  });
}

const streamed = { accept: "text/event-stream" };

describe("predictions", () => {
  test("have the answer of the completion as output", async () => {
    const { post } = createTestApp();
    const response = await post("/predictions", { id: "one", input: chatBody });
    expect(response.status).toBe(200);
    expect(await response.json()).toEqual({
      id: "one",
      status: "succeeded",
      output: expect.objectContaining({ object: "chat.completion" }),
      metrics: { predict_time: expect.any(Number) },
    });
  });

  test("stream as named events, from start to completed", async () => {
    const testApp = createTestApp();
    const events = await eventsOf(await testApp.post("/predictions", { id: "one", input: chatBody }, streamed));
    expect(events.map(({ type }) => type)).toEqual(["start", ...events.slice(1, -1).map(() => "output"), "completed"]);
    expect(events[0]).toEqual({ type: "start", id: "one", status: "processing" });
    const chunks = events.slice(1, -1).map(({ chunk }) => chunk);
    expect(events.at(-1)).toMatchObject({ status: "succeeded", output: chunks });
    expect(JSON.stringify(chunks)).toContain('"content":"Hel"');
  });

  test("are joined by a second PUT while they run, whole and streamed, and computed once", async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const testApp = createTestApp({ script: ["Hel", promise, "lo."] });
    const first = put(testApp, "abc", streamed);
    await expect.poll(() => testApp.engine.numRunning).toBe(1);
    const whole = put(testApp, "abc");
    const again = put(testApp, "abc", streamed);
    resolve();
    const [events, joined] = await Promise.all([first.then(eventsOf), again.then(eventsOf)]);
    expect(joined).toEqual(events);
    expect(await (await whole).json()).toMatchObject({ id: "abc", status: "succeeded", output: expect.any(Array) });
    expect(testApp.engine.requests).toHaveLength(1);
    await put(testApp, "abc");
    expect(testApp.engine.requests).toHaveLength(2);
  });

  test("are canceled by their id, and 404 after that", async () => {
    const testApp = createTestApp({ script: ["Hel", hang] });
    const running = put(testApp, "abc");
    await expect.poll(() => testApp.engine.numRunning).toBe(1);
    const cancel = () => testApp.post("/predictions/abc/cancel", {});
    expect((await cancel()).status).toBe(200);
    const error = "The prediction was canceled.";
    expect(await (await running).json()).toMatchObject({ id: "abc", status: "canceled", error });
    await expect.poll(() => testApp.engine.numRunning).toBe(0);
    expect((await cancel()).status).toBe(404);
  });

  test("that fail in the middle of a stream name the request, and the log has the reason", async () => {
    const testApp = createTestApp({ script: ["Hel", new Error("broken")] });
    const headers = { ...streamed, "x-request-id": "r1" };
    const events = await eventsOf(await testApp.post("/predictions", { input: chatBody }, headers));
    expect(events.at(-1)).toMatchObject({ type: "completed", status: "failed", error: /request id r1\.$/ });
    expect(testApp.log).toContainEqual(
      expect.objectContaining({
        level: "error",
        message: "A stream failed.",
        requestId: "r1",
        error: expect.objectContaining({ message: "broken" }),
      }),
    );
  });

  test("end with the connection of a POST, but not of a PUT", async () => {
    const held = Promise.withResolvers<void>();
    const leave = async (testApp: TestApp, method: string, path: string) => {
      await using server = await serveApp(testApp);
      const client = new AbortController();
      const request = fetch(server.baseUrl + path, {
        method,
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ input: chatBody }),
        signal: client.signal,
      });
      await expect.poll(() => testApp.engine.numRunning).toBe(1);
      client.abort();
      await expect(request).rejects.toThrow("aborted");
    };
    const posted = createTestApp({ script: [hang] });
    await leave(posted, "POST", "/predictions");
    await expect.poll(() => [posted.engine.numRunning, posted.engine.numAborted]).toEqual([0, 1]);
    const joined = createTestApp({ script: ["Hel", held.promise, "lo."] });
    await leave(joined, "PUT", "/predictions/abc");
    const again = put(joined, "abc");
    held.resolve();
    expect(await (await again).json()).toMatchObject({ id: "abc", status: "succeeded" });
    expect([joined.engine.requests.length, joined.engine.numAborted]).toEqual([1, 0]);
  });

  test("of another tenant are invisible", async () => {
    const testApp = createTestApp({ script: [hang], config: { apiKeys: ["one", "two"] } });
    const mine = put(testApp, "abc", { authorization: "Bearer one" });
    await expect.poll(() => testApp.engine.numRunning).toBe(1);
    const cancel = (key: string) => testApp.post("/predictions/abc/cancel", {}, { authorization: `Bearer ${key}` });
    expect((await cancel("two")).status).toBe(404);
    expect((await cancel("one")).status).toBe(200);
    await mine;
  });

  test.for<[object, RegExp]>([
    [{}, /^input must be an object/],
    [{ input: { text: "a" } }, /^input must have messages/],
    [{ input: { prompt: 4 } }, /^input: prompt must be/],
    [{ input: chatBody, webhook: "https://a.example" }, /^webhook is not supported: jobs of a queue/],
  ])("%j is an input that is wrong: 422 with a detail", async ([body, detail]) => {
    const { post } = createTestApp();
    const response = await post("/predictions", body);
    expect([response.status, await response.json()]).toEqual([422, { detail: expect.stringMatching(detail) }]);
  });

  test("are rejected with 409 while all places are taken, and the health says BUSY", async () => {
    const testApp = createTestApp({ script: [hang], maxNumRequests: 1 });
    const running = put(testApp, "abc");
    await expect.poll(() => testApp.engine.numRunning).toBe(1);
    expect((await testApp.post("/predictions", { input: chatBody })).status).toBe(409);
    expect(await (await testApp.app.request("/health-check")).json()).toMatchObject({ status: "BUSY" });
    await testApp.post("/predictions/abc/cancel", {});
    await running;
  });
});

test("/health-check is always 200, and its body has the state", async () => {
  const { app, engine, service } = createTestApp();
  const health = async () => {
    const response = await app.request("/health-check");
    const { status, setup } = (await response.json()) as { status: string; setup: { status: string } };
    return [response.status, status, setup.status];
  };
  expect(await health()).toEqual([200, "READY", "succeeded"]);
  engine.state = "loading";
  expect(await health()).toEqual([200, "STARTING", "starting"]);
  engine.state = "failed";
  expect(await health()).toEqual([200, "DEFUNCT", "succeeded"]);
  engine.state = "ready";
  await service.drain(0);
  expect(await health()).toEqual([200, "UNHEALTHY", "succeeded"]);
});
