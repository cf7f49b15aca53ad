/** The field `priority` on the whole service, with one slot. */
import { afterAll, beforeAll, expect, test } from "vitest";

import { endless, withLastingAnswers } from "../../support/requests/lasting-answers.ts";
import { startService } from "../../support/service/running-service.ts";
import type { RunningService } from "../../support/service/running-service.ts";

let service: RunningService;

beforeAll(async () => {
  service = await startService({ MAX_NUM_SEQS: "1", SCHEDULING_POLICY: "priority", ...withLastingAnswers });
});
afterAll(() => service[Symbol.asyncDispose]());

function complete(body: object, signal: AbortSignal | null = null): Promise<Response> {
  return fetch(`${service.baseUrl}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ prompt: "A large red", ...body }),
    signal,
  });
}

async function metric(name: string): Promise<number> {
  const text = await (await fetch(`${service.baseUrl}/metrics`)).text();
  const line = text.split("\n").find((sample) => sample.startsWith(`${name}{`));
  return Number(line?.split(" ").at(-1));
}

test("a request with a lower priority value is answered before those that wait already", async () => {
  const blocking = new AbortController();
  // Until it is aborted, it holds the only slot.
  const holder = await complete({ ...endless, stream: true }, blocking.signal);
  const reading = holder.text().catch(() => "aborted");
  const ended: string[] = [];
  const ask = async (name: string, priority: number): Promise<void> => {
    const response = await complete({ max_tokens: 20, ignore_eos: true, priority });
    ended.push(`${name}: ${response.status}`);
  };
  const asked: Promise<void>[] = [];
  for (const [name, priority] of [
    ["later", 3],
    ["usual", 0],
    ["urgent", -2],
  ] as const) {
    asked.push(ask(name, priority));
    await expect.poll(() => metric("vllm:num_requests_waiting")).toBe(asked.length);
  }
  blocking.abort();
  expect(await reading).toBe("aborted");
  await Promise.all(asked);
  expect(ended).toEqual(["urgent: 200", "usual: 200", "later: 200"]);
});

test("/load counts the requests in progress", async () => {
  const blocking = new AbortController();
  const holder = await complete({ ...endless, stream: true }, blocking.signal);
  const reading = holder.text().catch(() => "aborted");
  const load = async (): Promise<unknown> => (await fetch(`${service.baseUrl}/load`)).json();
  expect(await load()).toEqual({ server_load: 1 });
  blocking.abort();
  await reading;
  await expect.poll(load).toEqual({ server_load: 0 });
});
