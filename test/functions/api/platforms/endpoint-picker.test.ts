/**
 * The service as a pod of an inference pool, called as gateways and endpoint pickers call it. The rules are those of
 * the model server protocol and the endpoint picker protocol (kubernetes-sigs/gateway-api-inference-extension at
 * 84436a96, docs/proposals/003 and 004) and of llm-d's picker (llm-d/llm-d-router at ebab6879: its sources of metrics
 * and models, its client of render routes, its parser of answers), all of August 2026 and read on 2026-11-22.
 */
import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";

import { startService } from "../../../support/service/running-service.ts";
import type { RunningService } from "../../../support/service/running-service.ts";
import { createTestApp } from "../../../support/service/test-app.ts";

let service: RunningService;
const picture = `data:image/png;base64,${await readFile("models/fovea-shapes/examples/scene.png", "base64")}`;

beforeAll(async () => {
  service = await startService();
});

afterAll(async () => {
  await service[Symbol.asyncDispose]();
});

const chat = {
  messages: [
    {
      role: "user",
      content: [
        { type: "image_url", image_url: { url: picture } },
        { type: "text", text: "Describe the picture." },
      ],
    },
  ],
  max_tokens: 8,
  temperature: 0,
};

async function post(path: string, body: object, headers: Readonly<Record<string, string>> = {}): Promise<Response> {
  return fetch(`${service.baseUrl}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
  });
}

describe("the source of metrics", () => {
  /** Samples of a gauge in the text format: `name{labels} value timestamp`. */
  async function samplesOf(name: string): Promise<{ readonly labels: string; readonly value: string }[]> {
    const response = await fetch(`${service.baseUrl}/metrics`);
    expect(response.headers.get("content-type")).toMatch(/^text\/plain; version=/);
    const lines = (await response.text()).split("\n");
    expect(lines).toContain(`# TYPE ${name} gauge`);
    return lines
      .filter((line) => line.startsWith(name) && /[ {]/.test(line[name.length]!))
      .map((line) => {
        // A sample without a time: the picker takes the newest, and the first among those without.
        const [, labels = "", value] = /^[\w:]+(?:\{(.*)\})? (\S+)$/.exec(line)!;
        return { labels, value: value! };
      });
  }

  test("finds one sample of each gauge, so that it cannot take the wrong one", async () => {
    for (const name of ["num_requests_waiting", "num_requests_running", "kv_cache_usage_perc"]) {
      const samples = await samplesOf(`vllm:${name}`);
      expect(samples, name).toHaveLength(1);
      expect(Number(samples[0]!.value)).toBeGreaterThanOrEqual(0);
      expect(Number(samples[0]!.value)).toBeLessThanOrEqual(1);
    }
  });

  test("reads size and number of KV blocks as whole numbers in labels", async () => {
    const [{ labels, value } = { labels: "", value: "" }, ...others] = await samplesOf("vllm:cache_config_info");
    expect([value, others]).toEqual(["1", []]);
    const numbers = new Map([...labels.matchAll(/(\w+)="([^"]*)"/g)].map(([, name, text]) => [name, text]));
    for (const name of ["block_size", "num_gpu_blocks"]) expect(numbers.get(name)).toMatch(/^[1-9]\d*$/);
  });

  test("counts requests while they are generated, and their share of the KV cache", async () => {
    const valueOf = async (name: string) => Number((await samplesOf(`vllm:${name}`))[0]!.value);
    const seen = new AbortController();
    const work = (async () => {
      while (!seen.signal.aborted)
        await (await post("/v1/chat/completions", { ...chat, max_tokens: 100, ignore_eos: true })).text();
    })();
    await expect.poll(() => valueOf("num_requests_running"), { interval: 5 }).toBe(1);
    await expect.poll(() => valueOf("kv_cache_usage_perc"), { interval: 5 }).toBeGreaterThan(0);
    seen.abort();
    await work;
    await expect.poll(() => valueOf("num_requests_running")).toBe(0);
  });
});

test("the source of models reads the list, whose fields have the types that it decodes", async () => {
  const list = z.looseObject({
    object: z.literal("list"),
    data: z
      .array(
        z.looseObject({
          id: z.string(),
          object: z.string(),
          created: z.int(),
          owned_by: z.string(),
          parent: z.string().nullable(),
        }),
      )
      .min(1),
  });
  const { data } = list.parse(await (await fetch(`${service.baseUrl}/v1/models`)).json());
  expect(data.map(({ id }) => id)).toEqual(["fovea-shapes"]);
});

test("metrics need no key, and the list of models does", async () => {
  const { app } = createTestApp({ config: { apiKeys: ["secret"] } });
  expect((await app.request("/metrics")).status).toBe(200);
  expect((await app.request("/v1/models")).status).toBe(401);
});

test("headers that gateways and pickers add change neither the answer nor its headers", async () => {
  const added = {
    "x-gateway-destination-endpoint": "10.0.0.1:8000,10.0.0.2:8000",
    "x-gateway-destination-endpoint-subset": "10.0.0.1:8000",
    "x-gateway-destination-endpoint-scores": "1,0.5",
    "x-gateway-inference-objective": "critical",
    "x-gateway-inference-fairness-id": "tenant",
    "x-gateway-model-name-rewrite": "other",
    "x-llm-d-inference-objective": "critical",
    "x-llm-d-inference-fairness-id": "tenant",
    "x-llm-d-slo-ttft-ms": "100",
    "x-prefiller-host-port": "10.0.0.3:8000",
    "x-data-parallel-host-port": "10.0.0.4:8000",
    "x-forwarded-for": "10.0.0.5",
    "x-envoy-expected-rq-timeout-ms": "300000",
  };
  const [plain, routed] = [await post("/v1/chat/completions", chat), await post("/v1/chat/completions", chat, added)];
  const answerOf = async (response: Response) => ((await response.json()) as { readonly choices: unknown }).choices;
  expect(routed.status).toBe(200);
  expect(await answerOf(routed)).toEqual(await answerOf(plain));
  for (const name of Object.keys(added)) expect(routed.headers.has(name), name).toBe(false);
});

describe("the parser of answers", () => {
  const usage = z.looseObject({
    prompt_tokens: z.int(),
    completion_tokens: z.int(),
    total_tokens: z.int(),
    prompt_tokens_details: z.looseObject({ cached_tokens: z.int() }),
  });

  test("finds the usage of a stream in a line of its own before the end, with the tokens that were reused", async () => {
    const body = { ...chat, stream: true, stream_options: { include_usage: true } };
    await (await post("/v1/chat/completions", body)).text();
    const response = await post("/v1/chat/completions", body);
    expect(response.headers.get("content-type")).toContain("text/event-stream");
    const lines = (await response.text()).split("\n").filter((line) => line !== "" && !line.startsWith(":"));
    for (const line of lines) expect(line).toMatch(/^data: \S/);
    expect(lines.at(-1)).toBe("data: [DONE]");
    const last = JSON.parse(lines.at(-2)!.slice("data: ".length)) as { readonly usage: unknown };
    expect(usage.parse(last.usage).prompt_tokens_details.cached_tokens).toBeGreaterThan(0);
  });

  test("finds the usage of an answer, and that of the end of a stream of responses", async () => {
    const { usage: whole } = (await (await post("/v1/chat/completions", chat)).json()) as { readonly usage: unknown };
    expect(usage.parse(whole).completion_tokens).toBeGreaterThan(0);
    const response = await post("/v1/responses", { input: "How many?", stream: true, max_output_tokens: 16 });
    const ends = [...(await response.text()).matchAll(/^data: (\{"type":"response\.(?:completed|incomplete)".*)$/gm)];
    const event = JSON.parse(ends.at(-1)![1]!) as { readonly response: { readonly usage: Record<string, unknown> } };
    expect(event.response.usage).toMatchObject({ input_tokens: expect.any(Number), output_tokens: expect.any(Number) });
  });
});

describe("the client of render routes", () => {
  const rendered = z.looseObject({
    token_ids: z.array(z.int().min(0).max(0xffff_ffff)).min(1),
    features: z
      .looseObject({
        mm_hashes: z.record(z.string(), z.array(z.string())),
        mm_placeholders: z.record(z.string(), z.array(z.looseObject({ offset: z.int(), length: z.int() }))),
      })
      .nullable(),
  });

  test("gets the tokens that the request will have, and where its picture is among them", async () => {
    // The picker sends the client's whole body, with the model that it was configured with.
    const body = { ...chat, stream: true, model: "fovea-shapes" };
    const { token_ids: tokenIds, features } = rendered.parse(
      await (await post("/v1/chat/completions/render", body)).json(),
    );
    const answer = (await (await post("/v1/chat/completions", chat)).json()) as {
      readonly usage: { readonly prompt_tokens: number };
    };
    expect(tokenIds).toHaveLength(answer.usage.prompt_tokens);
    expect(features!.mm_hashes.image).toHaveLength(1);
    const { offset, length } = features!.mm_placeholders.image![0]!;
    expect(offset + length).toBeLessThanOrEqual(tokenIds.length);
  });

  test("gets the same hash of a picture and the same first tokens from every pod, as routing by prefix needs", async () => {
    await using other = await startService();
    const renderAt = async (baseUrl: string, text: string) => {
      const body = structuredClone(chat);
      body.messages[0]!.content[1]!.text = text;
      const response = await fetch(`${baseUrl}/v1/chat/completions/render`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      });
      return rendered.parse(await response.json());
    };
    const [here, there] = [await renderAt(service.baseUrl, "Describe it."), await renderAt(other.baseUrl, "How many?")];
    expect(there.features!.mm_hashes).toEqual(here.features!.mm_hashes);
    const { offset, length } = here.features!.mm_placeholders.image![0]!;
    expect(there.token_ids.slice(0, offset + length)).toEqual(here.token_ids.slice(0, offset + length));
    expect(there.token_ids).not.toEqual(here.token_ids);
  });

  test("gets a list for completions, with one prompt too", async () => {
    const listOf = async (prompt: string | string[]) =>
      z.array(rendered).parse(await (await post("/v1/completions/render", { prompt })).json());
    const one = await listOf("a circle");
    expect(one).toHaveLength(1);
    expect((await listOf(["a circle", "a square"])).map(({ token_ids: tokenIds }) => tokenIds)[0]).toEqual(
      one[0]!.token_ids,
    );
  });
});
