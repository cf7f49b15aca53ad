import { spawn } from "node:child_process";
import { once } from "node:events";
import type { Socket } from "node:net";
import { createInterface } from "node:readline";
import OpenAI from "openai";
import { describe, expect, test } from "vitest";

import { EngineError } from "../../../engine/index.ts";
import { hang } from "../../support/engine/scripted-engine.ts";
import { openSocket, requestHead } from "../../support/requests/raw-connection.ts";
import { chatBody, createTestApp, serveApp } from "../../support/service/test-app.ts";
import type { TestAppOptions } from "../../support/service/test-app.ts";

const messages = [{ role: "user" as const, content: "Hello?" }];

async function start(options?: TestAppOptions) {
  const testApp = createTestApp(options);
  const served = await serveApp(testApp);
  const client = new OpenAI({ baseURL: `${served.baseUrl}/v1`, apiKey: "key-one", maxRetries: 0 });
  return { ...testApp, client, baseUrl: served.baseUrl, [Symbol.asyncDispose]: () => served[Symbol.asyncDispose]() };
}

describe("the openai client", () => {
  test("reads an answer, a stream and a list of models", async () => {
    await using server = await start({ config: { apiKeys: ["key-one"] } });
    const answer = await server.client.chat.completions.create({ model: "tiny", messages });
    expect(answer.choices[0]!.message.content).toBe("Hello.");
    expect(answer.usage?.total_tokens).toBe(8);

    const stream = server.client.chat.completions.stream({
      model: "tiny",
      messages,
      stream_options: { include_usage: true },
    });
    const final = await stream.finalChatCompletion();
    expect(final.choices[0]).toMatchObject({
      finish_reason: "stop",
      message: { role: "assistant", content: "Hello." },
    });
    expect(final.usage?.completion_tokens).toBe(3);

    const models = await server.client.models.list();
    expect(models.data.map(({ id }) => id)).toEqual(["tiny", "tiny-alias"]);
    expect((await server.client.completions.create({ model: "tiny", prompt: "a" })).choices[0]!.text).toBe("Hello.");
  });

  test.for<[EngineError, string]>([
    [new EngineError("queue_full", "Full."), "RateLimitError"],
    [new EngineError("image_unreachable", "Gone."), "UnprocessableEntityError"],
    [new EngineError("prompt_too_long", "6 of 5."), "BadRequestError"],
    [new EngineError("internal", "Bug."), "InternalServerError"],
  ])("turns %s into its %s", async ([error, name]) => {
    await using server = await start({ script: [error] });
    const failure = await server.client.chat.completions
      .create({ model: "tiny", messages })
      .catch((thrown) => thrown as Error);
    expect(failure.constructor.name).toBe(name);
  });

  test("throws if generation fails in the middle of a stream", async () => {
    await using server = await start({ script: ["a", new EngineError("runtime_failed", "Secret.")] });
    const stream = await server.client.chat.completions.create({ model: "tiny", messages, stream: true });
    const read = async (): Promise<void> => {
      for await (const chunk of stream) expect(chunk.object).toBe("chat.completion.chunk");
    };
    await expect(read()).rejects.toThrow(/Internal error/);
  });

  test("that disconnects before the first token counts as an aborted request", async () => {
    await using server = await start({ script: [hang, "a"] });
    const controller = new AbortController();
    const answer = server.client.chat.completions
      .create({ model: "tiny", messages }, { signal: controller.signal })
      .catch(() => null);
    await expect.poll(() => server.engine.numRunning).toBe(1);
    controller.abort();
    await answer;
    await expect
      .poll(() => server.log.at(-1))
      .toMatchObject({ message: "request", status: 499, finishReason: "abort", promptTokens: 5, completionTokens: 0 });
    const text = await (await fetch(`${server.baseUrl}/metrics`)).text();
    expect(text).toMatch(/^vllm:request_success_total\{finished_reason="abort",.*\} 1$/m);
    expect(text).toMatch(/^vllm:request_prompt_tokens_sum\{.*\} 5$/m);
    expect(text).toMatch(/^vllm:request_generation_tokens_count\{.*\} 1$/m);
    expect(text).toMatch(/^vllm:e2e_request_latency_seconds_count\{.*\} 1$/m);
    expect(text).toMatch(/^vllm:time_to_first_token_seconds_count\{.*\} 0$/m);
  });

  test.for([true, false])("that disconnects (stream: %s) frees the sequence", async (stream) => {
    await using server = await start({ script: ["a", hang] });
    const controller = new AbortController();
    const answer = server.client.chat.completions
      .create({ model: "tiny", messages, stream }, { signal: controller.signal })
      .catch(() => null);
    await expect.poll(() => server.engine.numRunning).toBe(1);
    controller.abort();
    await answer;
    await expect.poll(() => server.engine.numAborted).toBe(1);
    expect(server.service.numRequests).toBe(0);
    await expect.poll(() => server.log.at(-1)).toMatchObject({ message: "request", status: 499 });
  });
});

test("a connection that breaks in the middle of its body is not logged as our failure", async () => {
  await using server = await start();
  const socket = await openSocket(server.baseUrl);
  socket.write(requestHead(1000) + '{"messages": [');
  await expect.poll(() => server.bodies.numBodies).toBe(1);
  socket.destroy();
  await expect.poll(() => server.bodies.numBodies).toBe(0);
  await expect.poll(() => server.log.at(-1)).toMatchObject({ message: "request", status: 499 });
  expect(server.log.filter(({ level }) => level === "error")).toEqual([]);
});

test("a body announced as 200 MB is rejected before it is sent", async () => {
  await using server = await start();
  const socket = await openSocket(server.baseUrl);
  socket.write(requestHead(200_000_000));
  const [answer] = (await once(socket, "data")) as [Buffer];
  expect(answer.toString()).toMatch(
    /^HTTP\/1\.1 413 [\s\S]*connection: close[\s\S]*200000000 bytes; the limit is 100000/i,
  );
  socket.destroy();
});

test("a client that sends 200 MB anyway is cut off, and the next request is served", async () => {
  await using server = await start();
  const megabyte = new Uint8Array(1024 ** 2).fill(0x20);
  let numSent = 0;
  const endless = new ReadableStream<Uint8Array>({
    pull(controller) {
      if (numSent++ === 200) controller.close();
      else controller.enqueue(megabyte);
    },
  });
  const headers = { "content-type": "application/json" };
  const sending = fetch(`${server.baseUrl}/v1/chat/completions`, {
    method: "POST",
    headers,
    body: endless,
    duplex: "half",
  });
  const status = await sending.then(
    (response) => response.status,
    () => 413,
  );
  expect(status).toBe(413);
  expect(numSent).toBeLessThan(200);
  const next = await server.client.chat.completions.create({ model: "tiny", messages });
  expect(next.choices[0]!.message.content).toBe("Hello.");
});

test(
  "closing ten thousand open streams at once leaves the service running and idle",
  { timeout: 120_000 },
  async () => {
    const numStreams = 10_000;
    const script = new URL("../../support/service/scripted-server.ts", import.meta.url);
    const child = spawn(process.execPath, [script.pathname], { stdio: ["pipe", "pipe", "inherit"] });
    try {
      const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
      const readLine = async () => JSON.parse((await lines.next()).value ?? "null") as Record<string, unknown>;
      const baseUrl = String((await readLine()).baseUrl);
      const ask = async () => {
        child.stdin.write("?");
        return readLine();
      };
      const body = JSON.stringify({ ...chatBody, stream: true });
      const sockets: Socket[] = [];
      for (let first = 0; first < numStreams; first += 500) {
        const batch = await Promise.all(Array.from({ length: 500 }, () => openSocket(baseUrl)));
        for (const socket of batch) socket.write(requestHead(body.length) + body);
        await Promise.all(batch.map((socket) => once(socket, "data")));
        sockets.push(...batch);
      }
      expect(await ask()).toEqual({ numRequests: numStreams, numRunning: numStreams });
      for (const socket of sockets) socket.destroy();
      await expect.poll(ask, { timeout: 60_000 }).toEqual({ numRequests: 0, numRunning: 0 });
      expect((await fetch(`${baseUrl}/health`)).status).toBe(200);
      expect(child.exitCode).toBeNull();
    } finally {
      child.kill();
    }
  },
);
