/**
 * RunPod's API for clients of an endpoint, served by this process: runpod/docs at a900806 of 2026-08-20,
 * serverless/endpoints/operation-reference.mdx, job-states.mdx and send-requests.mdx.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { blankPng } from "../../engine/images/computed-picture.ts";
import { endless, withLastingAnswers } from "../../support/requests/lasting-answers.ts";
import { startService } from "../../support/service/running-service.ts";
import type { RunningService } from "../../support/service/running-service.ts";

const messages = [{ role: "user", content: "Hello?" }];
const short = { max_tokens: 4, temperature: 0 };
const long = { messages, ...endless };
const answer = (object: string) => ({ object, model: "tiny", choices: [{ index: 0 }] });

interface State {
  readonly id: string;
  readonly status: string;
  readonly output?: unknown;
  readonly error?: string;
  readonly delayTime?: number;
  readonly executionTime?: number;
  readonly stream?: readonly { readonly output: unknown }[];
}

let service: RunningService;

beforeAll(async () => {
  service = await startService({
    RUNPOD_LOCAL_API: "true",
    SERVED_MODEL_NAME: "tiny",
    API_KEY: "first,second",
    MAX_NUM_SEQS: "4",
    BATCH_MAX_NUM_SEQS: "2",
    ...withLastingAnswers,
  });
});

afterAll(async () => {
  await service[Symbol.asyncDispose]();
});

async function call(method: "GET" | "POST", path: string, body?: unknown, key = "first"): Promise<Response> {
  return fetch(`${service.baseUrl}${path}`, {
    method,
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
}

async function state(method: "GET" | "POST", path: string, body?: unknown): Promise<State> {
  const response = await call(method, path, body);
  expect(response.status).toBe(200);
  return (await response.json()) as State;
}

describe.for(["", "/v2/any-endpoint"])("below %s/", (prefix) => {
  test("/runsync answers with the output", async () => {
    const job = await state("POST", `${prefix}/runsync`, { input: { messages, sampling_params: short } });
    expect(job).toMatchObject({ status: "COMPLETED", output: [answer("chat.completion")] });
    expect(job.id).toMatch(/^sync-/);
    expect([typeof job.delayTime, typeof job.executionTime]).toEqual(["number", "number"]);
    expect(await state("GET", `${prefix}/status/${job.id}`)).toEqual(job);
  });

  test("/run answers at once, and /status when the job has ended", async () => {
    const { id, status } = await state("POST", `${prefix}/run`, { input: { prompt: "Hello", ...short } });
    expect(status).toBe("IN_QUEUE");
    await expect.poll(async () => (await state("GET", `${prefix}/status/${id}`)).status).toBe("COMPLETED");
    const job = await state("POST", `${prefix}/status/${id}`);
    expect(job.output).toMatchObject([answer("text_completion")]);
  });

  test("/stream gives each chunk once, and the end of the job", async () => {
    const input = { openai_route: "/v1/chat/completions", openai_input: { messages, ...short, stream: true } };
    const { id } = await state("POST", `${prefix}/run`, { input });
    const chunks: unknown[] = [];
    for (let status = ""; status !== "COMPLETED" || chunks.at(-1) !== "data: [DONE]\n\n";) {
      const read = await state("GET", `${prefix}/stream/${id}`);
      chunks.push(...(read.stream ?? []).map(({ output }) => output));
      status = read.status;
    }
    const texts = chunks
      .slice(0, -1)
      .map((chunk) => JSON.parse((chunk as string).slice(6)) as { choices: [{ delta: { content?: string } }] })
      .map(({ choices }) => choices[0].delta.content ?? "");
    const { output } = await state("GET", `${prefix}/status/${id}`);
    expect(output).toMatchObject([{ choices: [{ message: { content: texts.join("") } }] }]);
    expect((await state("POST", `${prefix}/stream/${id}`)).stream).toEqual([]);
  });

  test("/cancel ends a job that runs", async () => {
    const { id } = await state("POST", `${prefix}/run`, { input: { ...long, stream: true } });
    await expect.poll(async () => (await state("GET", `${prefix}/stream/${id}`)).stream?.length).toBeGreaterThan(0);
    expect(await state("POST", `${prefix}/cancel/${id}`)).toEqual({ id, status: "CANCELLED" });
    await expect.poll(async () => (await metrics()).running).toBe(0);
    const { status, output } = await state("GET", `${prefix}/status/${id}`);
    expect([status, output]).toEqual(["CANCELLED", undefined]);
    expect(await state("POST", `${prefix}/cancel/${id}`)).toEqual({ id, status: "CANCELLED" });
  });
});

async function metrics(): Promise<{ readonly running: number }> {
  const text = await (await fetch(`${service.baseUrl}/metrics`)).text();
  return { running: Number(/^vllm:num_requests_running\S* (\d+)/m.exec(text)?.[1]) };
}

test("/purge-queue removes the jobs that wait, and leaves those that run", async () => {
  const ids: string[] = [];
  for (let count = 0; count < 8; count++) ids.push((await state("POST", "/run", { input: long })).id);
  await expect.poll(async () => (await metrics()).running).toBeGreaterThan(0);
  const purged = (await (await call("POST", "/v2/e/purge-queue")).json()) as { readonly removed: number };
  expect(purged).toEqual({ removed: expect.any(Number), status: "completed" });
  expect(purged.removed).toBeGreaterThan(0);
  const states = await Promise.all(ids.map((id) => state("GET", `/status/${id}`)));
  expect(states.filter(({ status }) => status === "CANCELLED")).toHaveLength(purged.removed);
  expect(states[0]!.status).not.toBe("CANCELLED");
  expect(await (await call("POST", "/purge-queue")).json()).toEqual({ removed: 0, status: "completed" });
  for (const id of ids) await state("POST", `/cancel/${id}`);
  await expect.poll(async () => (await metrics()).running).toBe(0);
});

test("/cancel removes a job that waits", async () => {
  const ids: string[] = [];
  for (let count = 0; count < 8; count++) ids.push((await state("POST", "/run", { input: long })).id);
  const health = (await (await call("GET", "/v2/e/health")).json()) as { readonly jobs: Record<string, number> };
  expect(health).toMatchObject({ workers: { running: 1 } });
  expect(health.jobs.inQueue! + health.jobs.inProgress!).toBe(8);
  for (const id of ids.toReversed()) await state("POST", `/cancel/${id}`);
  await expect.poll(async () => (await metrics()).running).toBe(0);
  const states = await Promise.all(ids.map((id) => state("GET", `/status/${id}`)));
  expect(states.map(({ status }) => status)).toEqual(ids.map(() => "CANCELLED"));
  expect(states.at(-1)?.delayTime).toBeUndefined();
});

test("/runsync answers without an output when the job takes longer than ?wait", async () => {
  const job = await state("POST", "/runsync?wait=1000", { input: long });
  expect(job.status).toMatch(/^IN_/);
  expect(job.output).toBeUndefined();
  await state("POST", `/cancel/${job.id}`);
});

const bad: readonly (readonly [string, unknown, RegExp])[] = [
  ["an empty input", {}, /messages/],
  ["text", "hello", /must be a JSON object/],
  ["null", null, /must be a JSON object/],
  ["another model", { model: "other", messages }, /model `other` does not exist/],
  ["a wrong field", { messages, sampling_params: { temperature: -1 } }, /temperature/],
  ["a stream with a wrong field", { messages, stream: true, temperature: -1 }, /temperature/],
];
test.for(bad)("fails a job whose input is %s, with the reason", async ([, input, reason]) => {
  const job = await state("POST", "/runsync", { input });
  expect(job).toMatchObject({ status: "FAILED" });
  expect((JSON.parse(job.error!) as { readonly message: string }).message).toMatch(reason);
});

test("refuses a webhook that is not allowed", async () => {
  const job = await state("POST", "/runsync", { input: { messages, ...short }, webhook: "http://10.0.0.1/" });
  expect(job.error).toMatch(/JOB_ALLOWED_TARGETS/);
});

const refused: readonly (readonly [string, "GET" | "POST", string, unknown, number, RegExp])[] = [
  ["no input", "POST", "/run", {}, 400, /input is required/],
  ["a policy that is no number", "POST", "/run", { input: {}, policy: { ttl: "a" } }, 400, /policy.ttl must be/],
  ["a short policy", "POST", "/runsync", { input: {}, policy: { ttl: 1 } }, 400, /policy.ttl must be at least 10000/],
  ["a long wait", "POST", "/runsync?wait=400000", { input: {} }, 400, /wait must be at most 300000/],
  ["an unknown job", "GET", "/status/nothing", undefined, 404, /There is no job nothing/],
  ["an unknown job to cancel", "POST", "/v2/e/cancel/nothing", undefined, 404, /There is no job nothing/],
];
test.for(refused)("refuses %s", async ([, method, path, body, status, message]) => {
  const response = await call(method, path, body);
  const { error } = (await response.json()) as { readonly error: { readonly message: string } };
  expect([response.status, message.test(error.message)]).toEqual([status, true]);
});

test("shows a job to the holder of its key alone", async () => {
  const { id } = await state("POST", "/runsync", { input: { messages, ...short } });
  const paths = [`/status/${id}`, `/stream/${id}`, `/v2/e/status/${id}`];
  const others = await Promise.all(paths.map((path) => call("GET", path, undefined, "second")));
  expect(others.map(({ status }) => status)).toEqual([404, 404, 404]);
  expect((await call("POST", `/cancel/${id}`, undefined, "second")).status).toBe(404);
  expect((await call("POST", "/run", { input: {} }, "stranger")).status).toBe(401);
});

test("a picture's name belongs to the holder of the key that gave it", async () => {
  const scene = `data:image/png;base64,${blankPng({ width: 8, height: 8, bitDepth: 8, colourType: "rgb" }).toString("base64")}`;
  const ask = async (url: string | null, key: string): Promise<State> => {
    const picture = { type: "image_url", image_url: url === null ? null : { url }, uuid: "scene" };
    const input = { messages: [{ role: "user", content: [picture] }], ...short };
    return (await (await call("POST", "/runsync", { input }, key)).json()) as State;
  };
  expect((await ask(scene, "first")).status).toBe("COMPLETED");
  expect((await ask(null, "first")).status).toBe("COMPLETED");
  const other = await ask(null, "second");
  expect(other.status).toBe("FAILED");
  expect(other.error).toMatch(/as a uuid only, and is not cached/);
});

test("does not serve the API without its setting", async () => {
  await using plain = await startService();
  const response = await fetch(`${plain.baseUrl}/run`, { method: "POST", body: "{}" });
  expect(response.status).toBe(404);
});
