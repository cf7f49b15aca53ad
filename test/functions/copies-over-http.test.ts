/** A service with two copies of the model, each of which computes one sequence at a time. */
import { readFile } from "node:fs/promises";
import OpenAI from "openai";
import { afterAll, beforeAll, expect, test } from "vitest";

import { endless, withLastingAnswers } from "../support/requests/lasting-answers.ts";
import { startService } from "../support/service/running-service.ts";
import type { RunningService } from "../support/service/running-service.ts";

const model = "fovea-shapes";
let service: RunningService;
let client: OpenAI;

beforeAll(async () => {
  const copies = { DATA_PARALLEL_SIZE: "2", MAX_NUM_SEQS: "1", MAX_NUM_WAITING: "0" };
  service = await startService({ ...copies, ...withLastingAnswers });
  client = new OpenAI({ baseURL: `${service.baseUrl}/v1`, apiKey: "none", maxRetries: 0 });
});

afterAll(() => service[Symbol.asyncDispose]());

async function numRunning(): Promise<number> {
  const text = await (await fetch(`${service.baseUrl}/metrics`)).text();
  return Number(/^vllm:num_requests_running\{.*\} (\S+)$/m.exec(text)![1]);
}

test("two requests run at the same time, and a third is one too many", async () => {
  const streams = await Promise.all(
    [1, 2].map((number) =>
      client.completions.create({
        model,
        prompt: `a red circle ${number}`,
        stream: true,
        // Some are Fovea's fields, which the client passes on.
        ...endless,
      }),
    ),
  );
  await expect.poll(numRunning).toBe(2);
  const third = client.completions.create({ model, prompt: "one too many", max_tokens: 1 });
  await expect(third).rejects.toMatchObject({ status: 429 });
  for (const stream of streams) stream.controller.abort();
  await expect.poll(numRunning).toBe(0);
});

test("questions about a picture are answered alike by both copies", async () => {
  const picture = await readFile(new URL("../../models/fovea-shapes/examples/scene.png", import.meta.url));
  const url = `data:image/png;base64,${picture.toString("base64")}`;
  const ask = async (): Promise<string> => {
    const answer = await client.chat.completions.create({
      model,
      temperature: 0,
      messages: [
        {
          role: "user",
          content: [
            { type: "image_url", image_url: { url } },
            { type: "text", text: "Describe the picture." },
          ],
        },
      ],
    });
    return answer.choices[0]!.message.content!;
  };
  const [one, other] = await Promise.all([ask(), ask()]);
  expect(one).toMatch(/^A large red circle in the top left/);
  expect(other).toBe(one);
});

test("a request with two choices is computed by one copy", async () => {
  const answer = await client.completions.create({ model, prompt: "a circle", n: 2, max_tokens: 4, temperature: 1 });
  expect(answer.choices.map(({ index }) => index)).toEqual([0, 1]);
});
