/** The cost of a known picture over HTTP, with the shipped checkpoint, on one replica and on two. */
import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, expect, test } from "vitest";

import { startRedisServer } from "../support/servers/redis-server.ts";
import type { RedisServer } from "../support/servers/redis-server.ts";
import { startService } from "../support/service/running-service.ts";
import type { RunningService } from "../support/service/running-service.ts";

let redis: RedisServer;
let picture: string;

beforeAll(async () => {
  redis = await startRedisServer();
  const bytes = await readFile(new URL("../../models/fovea-shapes/examples/scene.png", import.meta.url));
  picture = `data:image/png;base64,${bytes.toString("base64")}`;
});
afterAll(() => redis.kill());

/** Redis timeouts are not tested here, so the limit is generous. A queue of batches would have its own keys. */
function replica(environment: Readonly<Record<string, string>> = {}): Promise<RunningService> {
  const settings = { MAX_NUM_SEQS: "2", BATCH_STORE: "none", REDIS_URL: redis.url, REDIS_COMMAND_TIMEOUT_MS: "5000" };
  return startService({ ...settings, ...environment });
}

async function ask({ baseUrl }: RunningService, fields: object = {}, headers: object = {}): Promise<string> {
  const content = [
    { type: "image_url", image_url: { url: picture } },
    { type: "text", text: "How many shapes are there?" },
  ];
  const body = { messages: [{ role: "user", content }], temperature: 0, max_tokens: 16, ...fields };
  const response = await fetch(`${baseUrl}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw new Error(await response.text());
  const answer = (await response.json()) as { choices: { message: { content: string } }[] };
  return answer.choices[0]!.message.content;
}

/** The metric's value; labels in Prometheus' notation. */
async function metric({ baseUrl }: RunningService, name: string, ...labels: readonly string[]): Promise<number> {
  const lines = (await (await fetch(`${baseUrl}/metrics`)).text()).split("\n");
  const line = lines.find((text) => text.startsWith(`${name}{`) && labels.every((label) => text.includes(label)));
  return Number(line?.slice(line.lastIndexOf(" ") + 1));
}

test("a picture is processed and encoded once for all replicas, and every answer is the same", async () => {
  await using first = await replica();
  await using second = await replica();
  const answer = await ask(first);
  expect(await ask(first)).toBe(answer);
  expect(await metric(first, "vllm:mm_cache_queries_total")).toBe(2);
  expect(await metric(first, "vllm:mm_cache_hits_total")).toBe(1);
  expect(await metric(first, "fovea_cache_hits_total", 'cache="encoder"', 'tier="memory"')).toBe(1);
  // Written in the background: pixels, embeddings, and prompt updates of the picture.
  await expect.poll(() => redis.command("dbsize"), { interval: 10 }).toBe("3");

  expect(await ask(second)).toBe(answer);
  for (const cache of ["processor", "encoder"]) {
    expect(await metric(second, "fovea_cache_hits_total", `cache="${cache}"`, 'tier="redis"')).toBe(1);
    expect(await metric(second, "fovea_cache_written_bytes_total", `cache="${cache}"`, 'tier="redis"')).toBe(0);
  }
  expect(await metric(second, "fovea_cache_queries_total", 'cache="pixels"', 'tier="redis"')).toBe(0);
  expect(await metric(second, "fovea_redis_available", 'operation="write"')).toBe(1);
});

test("tenants share no pictures: neither other API keys nor other salts", async () => {
  await using service = await replica({ API_KEY: "one,two", REDIS_KEY_PREFIX: "tenants" });
  const as = (key: string) => ({ authorization: `Bearer ${key}` });
  const hits = (): Promise<number> => metric(service, "vllm:mm_cache_hits_total");
  const answer = await ask(service, {}, as("one"));
  expect(await ask(service, {}, as("two"))).toBe(answer);
  expect(await ask(service, { cache_salt: "mine" }, as("one"))).toBe(answer);
  expect(await hits()).toBe(0);
  await ask(service, {}, as("two"));
  await ask(service, { cache_salt: "mine" }, as("one"));
  expect(await hits()).toBe(2);
});

test("Redis can fail at any time: answers stay the same, and the metrics show it", async () => {
  const doomed = await startRedisServer();
  await using service = await replica({ REDIS_URL: doomed.url, MM_PROCESSOR_CACHE_GB: "0" });
  const answer = await ask(service);
  await expect.poll(() => doomed.command("dbsize"), { interval: 10 }).toBe("3");
  await doomed.kill();
  expect(await ask(service)).toBe(answer);
  expect(await metric(service, "fovea_redis_available", 'operation="read"')).toBe(0);
  expect(await metric(service, "fovea_cache_errors_total", 'cache="processor"')).toBeGreaterThan(0);
});
