/**
 * Vertex AI as the caller of the container. The contract, read on 2026-11-22:
 * https://cloud.google.com/vertex-ai/docs/predictions/custom-container-requirements
 * https://cloud.google.com/vertex-ai/docs/predictions/get-online-predictions#raw-predict-request
 */
import { describe, expect, test } from "vitest";

import { loadConfig } from "../../../../functions/settings/config.ts";
import { hang } from "../../../support/engine/scripted-engine.ts";
import { freePort } from "../../../support/servers/free-port.ts";
import { startContainer } from "../../../support/service/container-process.ts";
import { chatBody, createTestApp } from "../../../support/service/test-app.ts";

/** The default paths, which the platform forms of its ids. */
const health = "/v1/endpoints/12/deployedModels/34";
const predict = `${health}:predict`;
const config = { vertexRoutes: { health, predict } };

test("the image serves on AIP_HTTP_PORT at the paths that the platform chooses", async () => {
  const port = await freePort();
  const environment = { AIP_HTTP_PORT: String(port), AIP_HEALTH_ROUTE: health, AIP_PREDICT_ROUTE: predict };
  await using _ = await startContainer(environment);
  const origin = `http://127.0.0.1:${port}`;
  expect((await fetch(origin + health)).status).toBe(200);
  const response = await fetch(origin + predict, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ instances: [{ prompt: "A" }, chatBody], parameters: { max_tokens: 2, temperature: 0 } }),
  });
  expect(await response.json()).toEqual({
    predictions: [
      expect.objectContaining({ object: "text_completion" }),
      expect.objectContaining({ object: "chat.completion" }),
    ],
  });
});

test("the health route is 200 only while requests are served", async () => {
  const { app, engine } = createTestApp({ config });
  expect((await app.request(health)).status).toBe(200);
  engine.state = "loading";
  expect((await app.request(health)).status).toBe(503);
});

describe("predictions", () => {
  test("an instance overrides the parameters of all", async () => {
    const { post, engine } = createTestApp({ config });
    const instances = [{ prompt: "A" }, { prompt: "B", max_tokens: 3 }];
    const response = await post(predict, { instances, parameters: { max_tokens: 5 } });
    expect(response.status).toBe(200);
    expect(engine.requests.map(({ samplingParams }) => samplingParams?.maxTokens)).toEqual([5, 3]);
  });

  test.for<[string, object, string]>([
    ["messages and a prompt", { ...chatBody, prompt: "A" }, "chat.completion"],
    ["a prompt that is null", { ...chatBody, prompt: null }, "chat.completion"],
    ["messages that are null", { messages: null, prompt: "A" }, "text_completion"],
  ])("a body with %s is the same completion alone and as an instance", async ([, body, object]) => {
    const { post } = createTestApp({ config });
    expect(await (await post(predict, body)).json()).toMatchObject({ object });
    expect(await (await post(predict, { instances: [body] })).json()).toMatchObject({ predictions: [{ object }] });
  });

  test("Model Garden's format gives the answer itself instead of a list", async () => {
    const { post } = createTestApp({ config });
    const response = await post(predict, { instances: [{ "@requestFormat": "chatCompletions", ...chatBody }] });
    const { predictions } = (await response.json()) as { predictions: { choices: { message: object }[] } };
    expect(predictions.choices[0]!.message).toMatchObject({ role: "assistant", content: "Hello." });
  });

  test("rawPredict and streamRawPredict send the body itself", async () => {
    const { post } = createTestApp({ config });
    expect(await (await post(predict, chatBody)).json()).toMatchObject({ object: "chat.completion" });
    const streamed = await post(predict, { ...chatBody, stream: true });
    expect(await streamed.text()).toMatch(/chat\.completion\.chunk[\s\S]*data: \[DONE\]\n\n$/);
  });

  test("an invalid instance is named, and no instance is computed", async () => {
    const { post, engine } = createTestApp({ config });
    const response = await post(predict, { instances: [{ prompt: "A" }, { prompt: "B", max_tokens: "many" }] });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: { param: "instances[1].max_tokens" } });
    expect(engine.requests).toHaveLength(0);
  });

  test.for<[object, RegExp]>([
    [{ instances: [] }, /^instances must contain a body/],
    [{ instances: [{ text: "a" }] }, /^instances\[0\] must have messages/],
    [{ instances: [{ ...chatBody, stream: true }] }, /^instances\[0\]\.stream must be false here/],
    [{ instances: [{ prompt: "A", model: "other" }] }, /^instances\[0\]: The model `other` does not exist/],
  ])("%j is rejected", async ([body, message]) => {
    const { post } = createTestApp({ config });
    const response = await post(predict, body);
    expect(response.status).toBeGreaterThanOrEqual(400);
    const { error } = (await response.json()) as { error: { message: string } };
    expect(error.message).toMatch(message);
  });

  test("more instances than fit into an engine are rejected with both numbers", async () => {
    const { post } = createTestApp({ config });
    const response = await post(predict, { instances: Array.from({ length: 129 }, () => chatBody) });
    expect(await response.json()).toMatchObject({
      error: { param: "instances", message: "instances can hold at most 128 entries, not 129." },
    });
  });

  test("parameters that would be copied into every instance are bounded", async () => {
    const { post, engine } = createTestApp({ config });
    const parameters = Object.fromEntries(Array.from({ length: 129 }, (_, index) => [`p${index}`, 1]));
    const response = await post(predict, { instances: [chatBody], parameters });
    expect([response.status, engine.requests.length]).toEqual([400, 0]);
    expect(await response.json()).toMatchObject({
      error: { param: "parameters", message: "parameters can have at most 128 fields, not 129." },
    });
  });

  test("all instances end if the service has no room for one of them", async () => {
    const { post, engine, service } = createTestApp({ config, maxNumRequests: 2, script: [hang] });
    const response = await post(predict, { instances: [chatBody, chatBody, chatBody] });
    expect(response.status).toBe(429);
    await expect.poll(() => [engine.numRunning, service.numRequests]).toEqual([0, 0]);
  });
});

test("a route of the platform that is one of ours stays ours", async () => {
  const { app, post } = createTestApp({
    config: { vertexRoutes: { health: "/health", predict: "/v1/chat/completions" } },
  });
  expect((await app.request("/health")).status).toBe(200);
  expect(await (await post("/v1/chat/completions", chatBody)).json()).toMatchObject({ object: "chat.completion" });
});

test("predictions need a key if there are keys", async () => {
  const { post } = createTestApp({ config: { ...config, apiKeys: ["secret"] } });
  expect((await post(predict, { instances: [chatBody] })).status).toBe(401);
});

test("paths with parameters or wildcards are rejected", () => {
  for (const path of ["predict", "/*", "/:model", "/a b"]) {
    expect(() => loadConfig({ AIP_PREDICT_ROUTE: path })).toThrow(/AIP_PREDICT_ROUTE is .* expected an absolute path/);
  }
  expect(loadConfig({ AIP_PREDICT_ROUTE: "" }).vertexRoutes.predict).toBe(null);
});
