/**
 * OpenAI's Python client, LiteLLM, and the former through LiteLLM's proxy, unmodified, against the shipped checkpoint.
 * Each program runs all of its cases at once, because Python takes seconds to import these packages.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { RunningService } from "../../support/service/running-service.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { model, startClientService } from "./client-service.ts";
import { readExamplePicture, sceneAnswer } from "./example-pictures.ts";
import { ALL_TOKENS } from "./length-processor.ts";
import { startLiteLlmProxy } from "./python/litellm-proxy.ts";
import { runPython } from "./python/python-program.ts";

/** Python imports these packages in 3 seconds, or in minutes on a busy machine, and the proxy and its client start in turn. */
const TIMEOUT_MS = 900_000;
const apiKey = "a-key";
let service: RunningService;
let dataUrl: string;

beforeAll(async () => {
  service = await startClientService({ API_KEY: apiKey });
  ({ dataUrl } = await readExamplePicture("scene"));
});

afterAll(() => service[Symbol.asyncDispose]());

interface Deltas {
  readonly deltas: readonly string[];
}

interface OpenAiResults {
  readonly chat: unknown;
  readonly stream: Deltas;
  readonly tool_loop: unknown;
  readonly structured: unknown;
  readonly responses: unknown;
  readonly response_stream: Deltas;
  readonly models: unknown;
  readonly batch: unknown;
  readonly errors: Readonly<Record<string, unknown>>;
  readonly abort: unknown;
}

function expectOpenAiResults(results: OpenAiResults): void {
  const usage = { prompt_tokens: 71, completion_tokens: 36, total_tokens: 107 };
  expect(results.chat).toMatchObject({ content: sceneAnswer, reason: "stop", usage });
  expect(results.stream).toMatchObject({ reasons: ["stop"], usage });
  expect(results.stream.deltas.join("")).toBe(sceneAnswer);
  expect(results.stream.deltas.length).toBeGreaterThan(5);
  const call = ["tool_calls", "look", { place: expect.stringMatching(/^(center|top left)$/) }];
  expect(results.tool_loop).toEqual({ calls: [call, call, call], content: expect.any(String), reason: "stop" });
  expect(results.structured).toEqual({ color: expect.stringMatching(/^(Red|Yellow|Blue)$/) });
  expect(results.responses).toEqual({ text: sceneAnswer, status: "completed" });
  expect(results.response_stream).toMatchObject({ text: sceneAnswer });
  expect(results.response_stream.deltas.join("")).toBe(sceneAnswer);
  expect(results.models).toEqual([model]);
  expect(results.batch).toEqual({ answers: ["Yellow"], wrong: [400], counts: [1, 1, 2], deleted: [true, true] });
  expect(results.abort).toBe(true);
}

async function runOpenAiClient(baseUrl: string, key: string, ...modelOfFiles: string[]): Promise<OpenAiResults> {
  return runPython("openai_client.py", [`${baseUrl}/v1`, key, model, dataUrl, String(ALL_TOKENS), ...modelOfFiles]);
}

const numAborted = (): number =>
  service
    .log()
    .split("\n")
    .filter((line) => line.includes('"status":499')).length;

describe("openai for Python", () => {
  test(
    "answers, streams, calls tools, runs a batch, and maps errors to its exceptions",
    { timeout: TIMEOUT_MS },
    async () => {
      const before = numAborted();
      const results = await runOpenAiClient(service.baseUrl, apiKey);
      expectOpenAiResults(results);
      expect(results.errors).toMatchObject({
        wrong_field: { type: "BadRequestError", param: "temperature" },
        wrong_model: { type: "NotFoundError", code: "model_not_found" },
        wrong_key: { type: "AuthenticationError", code: "invalid_api_key" },
        long_prompt: { type: "BadRequestError", code: "context_length_exceeded" },
        no_embeddings: { type: "BadRequestError" },
      });
      await expect.poll(numAborted).toBe(before + 1);
    },
  );

  test("gives the same answers through LiteLLM's proxy", { timeout: TIMEOUT_MS }, async () => {
    await using folder = await createTemporaryFolder();
    await using proxy = await startLiteLlmProxy({ baseUrl: service.baseUrl, apiKey, model }, folder.path);
    const before = numAborted();
    const results = await runOpenAiClient(proxy.baseUrl, proxy.apiKey, model);
    expectOpenAiResults(results);
    // The proxy checks keys itself.
    expect(results.errors).toMatchObject({
      wrong_field: { type: "BadRequestError" },
      long_prompt: { type: "BadRequestError" },
    });
    await expect.poll(numAborted).toBe(before + 1);
  });
});

test(
  "LiteLLM's client answers, streams, calls tools, and knows the service's errors",
  { timeout: TIMEOUT_MS },
  async () => {
    const args = [`${service.baseUrl}/v1`, apiKey, model, dataUrl];
    const results = await runPython<Readonly<Record<string, unknown>>>("litellm_client.py", args);
    const expected = {
      chat: sceneAnswer,
      stream: { num_chunks: expect.any(Number), content: sceneAnswer },
      tools: {
        reason: "tool_calls",
        name: "look",
        arguments: { place: expect.stringMatching(/^(center|top left)$/) },
      },
      responses: sceneAnswer,
      errors: {
        wrong_field: ["BadRequestError", 400],
        wrong_model: ["NotFoundError", 404],
        wrong_key: ["AuthenticationError", 401],
        long_prompt: ["ContextWindowExceededError", 400],
      },
    };
    expect(results).toEqual({ openai: expected, hosted_vllm: expected });
  },
);
