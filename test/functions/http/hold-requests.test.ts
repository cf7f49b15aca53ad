/** Requests that arrive while the model loads. */
import { describe, expect, test } from "vitest";

import { EngineError } from "../../../engine/index.ts";
import { chatBody, createTestApp } from "../../support/service/test-app.ts";

/** Far longer than a test, so that only the expected event ends the hold. */
const LONG_MS = 200_000;

function startingApp(holdMs: number, maxNumRequests = 4) {
  const testApp = createTestApp({ maxNumRequests, holdMs, isLoading: true });
  const { engine } = testApp;
  return {
    ...testApp,
    finishLoading: () => {
      engine.state = "ready";
      engine.endLoading();
    },
    failLoading: () => {
      engine.state = "failed";
      engine.endLoading(new EngineError("invalid_checkpoint", "A tensor is missing."));
    },
  };
}

const chatPath = "/v1/chat/completions";

describe("requests that are held while the model loads", () => {
  test("are answered when it is loaded, and their log lines say how long they waited", async () => {
    const { service, post, finishLoading, log } = startingApp(LONG_MS);
    const answers = [chatPath, "/v1/messages", "/invocations"].map((path) =>
      post(path, { ...chatBody, max_tokens: 4 }),
    );
    await expect.poll(() => service.numHeld).toBe(3);
    expect(service.numRequests).toBe(0);
    finishLoading();
    for (const answer of await Promise.all(answers)) expect(answer.status).toBe(200);
    expect(service.numHeld).toBe(0);
    expect(log.filter(({ message }) => message === "request").every(({ heldMs }) => typeof heldMs === "number")).toBe(
      true,
    );
  });

  test("get 503 after the deadline", async () => {
    const { post, service } = startingApp(1);
    const answer = await post(chatPath, chatBody);
    expect(answer.status).toBe(503);
    expect(answer.headers.get("retry-after")).not.toBeNull();
    expect(await answer.json()).toMatchObject({ error: { code: "model_loading" } });
    expect(service.numHeld).toBe(0);
  });

  test("get 503 at once without the setting, and when the service drains", async () => {
    const atOnce = startingApp(0);
    expect((await atOnce.post(chatPath, chatBody)).status).toBe(503);
    const { post, service } = startingApp(LONG_MS);
    const answer = post(chatPath, chatBody);
    await expect.poll(() => service.numHeld).toBe(1);
    expect(await service.drain(0)).toBe(true);
    expect((await answer).status).toBe(503);
  });

  test("get an error when the model cannot be loaded", async () => {
    const { post, service, failLoading } = startingApp(LONG_MS);
    const answer = post(chatPath, chatBody);
    await expect.poll(() => service.numHeld).toBe(1);
    failLoading();
    expect((await answer).status).toBe(500);
  });

  test("are as many as may be in progress; one more gets 429", async () => {
    const { post, service, finishLoading } = startingApp(LONG_MS, 2);
    const held = [post(chatPath, chatBody), post(chatPath, chatBody)];
    await expect.poll(() => service.numHeld).toBe(2);
    expect((await post(chatPath, chatBody)).status).toBe(429);
    finishLoading();
    for (const answer of held) expect((await answer).status).toBe(200);
  });

  test("leave when their clients do", async () => {
    const { app, service } = startingApp(LONG_MS);
    const gone = new AbortController();
    const headers = { "content-type": "application/json" };
    const answer = app.request(chatPath, {
      method: "POST",
      headers,
      body: JSON.stringify(chatBody),
      signal: gone.signal,
    });
    await expect.poll(() => service.numHeld).toBe(1);
    gone.abort();
    await expect.poll(() => service.numHeld).toBe(0);
    expect((await answer).status).toBe(499);
  });

  test("are held after their key is checked, and probes are not held", async () => {
    const { app, post, service } = createTestApp({ holdMs: LONG_MS, isLoading: true, config: { apiKeys: ["secret"] } });
    expect((await post(chatPath, chatBody)).status).toBe(401);
    expect((await app.request("/health")).status).toBe(503);
    expect((await app.request("/livez")).status).toBe(200);
    expect(service.numHeld).toBe(0);
  });
});
