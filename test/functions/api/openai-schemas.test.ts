/**
 * Every answer of OpenAI's endpoints beside Responses has the published shape: the shipped checkpoint's answers, and
 * those of a model that thinks and calls tools.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { EngineError } from "../../../engine/index.ts";
import type { Script } from "../../support/engine/scripted-engine.ts";
import { thinkingFormats } from "../../support/requests/thinking-formats.ts";
import { wireSchemas } from "../../support/requests/wire-schemas.ts";
import { startService } from "../../support/service/running-service.ts";
import type { RunningService } from "../../support/service/running-service.ts";
import { createTestApp } from "../../support/service/test-app.ts";
import { readExamplePicture } from "../clients/example-pictures.ts";

const check = wireSchemas("openai-completions.json");
const weather = { type: "function", function: { name: "get_weather", parameters: { type: "object" } } };
const call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>';

type Answer = Readonly<Record<string, unknown>>;

/** Expects that the stream ends as OpenAI's streams do. */
async function readChunks(response: Response): Promise<Answer[]> {
  const lines = (await response.text()).split("\n\n").filter((line) => line.startsWith("data: "));
  expect(lines.pop()).toBe("data: [DONE]");
  return lines.map((line) => JSON.parse(line.slice("data: ".length)) as Answer);
}

async function checkStream(definition: string, response: Response): Promise<Answer[]> {
  const chunks = await readChunks(response);
  for (const chunk of chunks) check(definition, chunk);
  return chunks;
}

describe("a model that thinks and calls", () => {
  const script: Script = [{ text: "<think>", reasoningStart: "before" }, "Where?</think>", "Let me look.", call];
  const { post } = createTestApp({ script, config: { outputFormats: thinkingFormats } });
  const body = { messages: [{ role: "user", content: "Which?" }], tools: [weather] };

  test("answers with thinking, text and calls", async () => {
    const answer = (await (await post("/v1/chat/completions", body)).json()) as Answer;
    check("CreateChatCompletionResponse", answer);
    expect(answer).toMatchObject({
      choices: [
        {
          finish_reason: "tool_calls",
          message: { reasoning: "Where?", content: "Let me look.", tool_calls: [{ type: "function" }] },
        },
      ],
    });
  });

  test("streams them", async () => {
    const options = { include_usage: true };
    const response = await post("/v1/chat/completions", { ...body, stream: true, stream_options: options });
    const chunks = await checkStream("CreateChatCompletionStreamResponse", response);
    const text = JSON.stringify(chunks);
    for (const part of ['"reasoning":"Where?"', '"content":"Let me look."', '"name":"get_weather"', '"usage":{'])
      expect(text).toContain(part);
  });
});

test.for<[name: string, script: Script]>([
  ["before the first token", [new EngineError("queue_full", "Full.")]],
  ["after it", ["Hel", new EngineError("internal", "A bug.")]],
])("an error %s is an error object", async ([, script]) => {
  const response = await createTestApp({ script }).post("/v1/chat/completions", {
    messages: [{ role: "user", content: "a" }],
    stream: true,
  });
  const errors =
    response.status === 200
      ? (await readChunks(response)).filter((chunk) => "error" in chunk)
      : [await response.json()];
  expect(errors).toHaveLength(1);
  check("ErrorResponse", errors[0]);
});

describe("the shipped checkpoint", () => {
  let service: RunningService;
  let messages: readonly object[];

  beforeAll(async () => {
    service = await startService();
    const { dataUrl } = await readExamplePicture("scene");
    const picture = { type: "image_url", image_url: { url: dataUrl } };
    messages = [{ role: "user", content: [picture, { type: "text", text: "Describe the picture." }] }];
  });

  afterAll(() => service[Symbol.asyncDispose]());

  const post = (path: string, body: object): Promise<Response> =>
    fetch(`${service.baseUrl}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
  const get = async (path: string): Promise<Answer> =>
    (await fetch(`${service.baseUrl}${path}`)).json() as Promise<Answer>;
  const tokens = {
    logprobs: true,
    top_logprobs: 2,
    return_token_ids: true,
    max_tokens: 8,
    n: 2,
    temperature: 1,
    seed: 1,
  };

  test.for<[name: string, fields: object]>([
    ["text", {}],
    ["tokens and logprobs of two choices", tokens],
    ["a required call", { tools: [weather], tool_choice: "required", max_tokens: 60 }],
    ["an answer that is cut off", { max_tokens: 2, stop: ["never"] }],
  ])("answers in chat with %s, whole and streamed", async ([, fields]) => {
    const body = { messages, temperature: 0, ...fields };
    const answer = (await (await post("/v1/chat/completions", body)).json()) as Answer;
    check("CreateChatCompletionResponse", answer);
    const streamed = await post("/v1/chat/completions", { ...body, stream: true });
    expect((await checkStream("CreateChatCompletionStreamResponse", streamed)).length).toBeGreaterThan(1);
  });

  test("completes texts, whole and streamed", async () => {
    const body = { prompt: ["A large", "A small"], max_tokens: 4, logprobs: 2, return_token_ids: true };
    check("CreateCompletionResponse", await (await post("/v1/completions", body)).json());
    const streamed = await post("/v1/completions", { ...body, stream: true });
    expect((await checkStream("CreateCompletionResponse", streamed)).length).toBeGreaterThan(2);
  });

  test("lists models", async () => {
    const list = await get("/v1/models");
    check("ListModelsResponse", list);
    const model = await get("/v1/models/fovea-shapes");
    check("Model", model);
    expect(list["data"]).toEqual([model]);
  });

  test.for<[endpoint: string, body: () => object, definition: string]>([
    ["/v1/chat/completions", () => ({ messages, max_tokens: 2 }), "CreateChatCompletionResponse"],
    ["/v1/completions", () => ({ prompt: "A large", max_tokens: 2 }), "CreateCompletionResponse"],
    ["/v1/responses", () => ({ input: "Which?", max_output_tokens: 2, metadata: { a: "b" } }), "Response"],
  ])("keeps files and batches of %s", async ([endpoint, body, definition]) => {
    const line = { custom_id: "a", method: "POST", url: endpoint, body: body() };
    const form = new FormData();
    form.set("purpose", "batch");
    form.set("file", new Blob([JSON.stringify(line)]), "requests.jsonl");
    const file = (await (await fetch(`${service.baseUrl}/v1/files`, { method: "POST", body: form })).json()) as Answer;
    check("OpenAIFile", file);
    const fields = { input_file_id: file["id"], endpoint, completion_window: "24h" };
    const created = (await (await post("/v1/batches", fields)).json()) as Answer;
    check("Batch", withoutNulls(created));
    const find = (): Promise<Answer> => get(`/v1/batches/${String(created["id"])}`);
    await expect.poll(async () => (await find())["status"]).toBe("completed");
    const batch = await find();
    check("Batch", withoutNulls(batch));
    const results = await get(`/v1/files/${String(batch["output_file_id"])}/content`);
    expect(results).toMatchObject({ custom_id: "a", error: null, response: { status_code: 200 } });
    const checkAnswer = definition === "Response" ? wireSchemas("openai-responses.json") : check;
    checkAnswer(definition, (results["response"] as { readonly body: unknown }).body);
    check("ListBatchesResponse", withoutNulls(await get("/v1/batches")));
    check("ListFilesResponse", await get("/v1/files"));
    const removed = await fetch(`${service.baseUrl}/v1/files/${String(file["id"])}`, { method: "DELETE" });
    check("DeleteFileResponse", await removed.json());
  });

  test.for<[path: string, body: object]>([
    ["/v1/chat/completions", { messages: [], temperature: 9 }],
    ["/v1/completions", { prompt: "a", model: "another" }],
    ["/v1/batches", {}],
    ["/v1/nothing", {}],
  ])("rejects a request to %s with an error object", async ([path, body]) => {
    const response = await post(path, body);
    expect(response.status).toBeGreaterThanOrEqual(400);
    check("ErrorResponse", await response.json());
  });
});

/** OpenAI's service sends null for what a batch does not have, as its document's example does; its schema does not say so. */
function withoutNulls(value: Answer): unknown {
  return JSON.parse(JSON.stringify(value, (_, member: unknown) => member ?? undefined));
}
