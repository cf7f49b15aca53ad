/**
 * The requests of Open WebUI, which is too large for a test: its wheel has 106 MB, and even its slim requirements have
 * 500 MB. They are those of open_webui/routers/openai.py, routers/tasks.py, utils/payload.py and utils/middleware.py of
 * the package open-webui 0.12.4 on PyPI, read on 2026-11-22, and compared with those that it sent to the service on
 * that day. Streams are read here as its middleware reads them.
 */
import { afterAll, beforeAll, expect, test } from "vitest";

import type { RunningService } from "../../support/service/running-service.ts";
import { model, startClientService } from "./client-service.ts";
import { describeQuestion, readExamplePicture, sceneAnswer } from "./example-pictures.ts";
import { ALL_TOKENS } from "./length-processor.ts";

let service: RunningService;
let pictureUrl: string;

beforeAll(async () => {
  service = await startClientService({ API_KEY: "a-key" });
  pictureUrl = (await readExamplePicture("scene")).dataUrl;
});

afterAll(() => service[Symbol.asyncDispose]());

const headers = {
  "Content-Type": "application/json",
  Authorization: "Bearer a-key",
  "X-OpenWebUI-User-Name": "Ada",
  "X-OpenWebUI-User-Role": "admin",
};

/** `url` is the connection's base URL, which ends with /v1. */
function post(path: string, payload: object, signal?: AbortSignal): Promise<Response> {
  const init = { method: "POST", headers, body: JSON.stringify(payload), ...(signal && { signal }) };
  return fetch(`${service.baseUrl}/v1${path}`, init);
}

const system = { role: "system", content: "You are helpful." };
const question = (text: string): object => ({
  role: "user",
  content: [
    { type: "text", text },
    { type: "image_url", image_url: { url: pictureUrl } },
  ],
});
/** All that the advanced parameters of a chat may add. */
const parameters = {
  temperature: 0,
  top_p: 0.9,
  min_p: 0,
  max_tokens: 200,
  frequency_penalty: 0,
  presence_penalty: 0,
  reasoning_effort: "low",
  seed: 42,
  stop: ["###"],
  logit_bias: { "5": -100 },
};

interface Call {
  readonly index: number;
  id?: string;
  readonly type?: string;
  readonly function: { name: string; arguments: string };
}

interface Chunk {
  readonly choices?: readonly {
    readonly delta?: { readonly content?: string; readonly tool_calls?: readonly Call[] };
  }[];
  readonly usage?: { readonly total_tokens: number } | null;
}

/** Lines that begin with `data:`; calls are joined by their index. */
async function readStream(response: Response): Promise<{ content: string; calls: Call[]; totalTokens: number }> {
  expect(response.headers.get("content-type")).toContain("text/event-stream");
  let content = "";
  let totalTokens = 0;
  const calls: Call[] = [];
  for (const line of (await response.text()).split("\n")) {
    if (!line.startsWith("data:")) continue;
    const data = line.slice("data:".length).trim();
    if (data === "[DONE]") break;
    const { choices = [], usage } = JSON.parse(data) as Chunk;
    totalTokens = usage?.total_tokens ?? totalTokens;
    content += choices[0]?.delta?.content ?? "";
    for (const delta of choices[0]?.delta?.tool_calls ?? []) {
      const known = calls.find(({ index }) => index === delta.index);
      if (known === undefined) calls.push(delta);
      else known.function.arguments += delta.function.arguments;
    }
  }
  return { content, calls, totalTokens };
}

test("lists models", async () => {
  const response = await fetch(`${service.baseUrl}/v1/models`, { headers });
  expect(await response.json()).toMatchObject({ data: [{ id: model }] });
});

test("a chat about a picture is streamed, with its usage and all parameters", async () => {
  const { logit_bias: _, ...others } = parameters;
  const payload = { stream: true, model, messages: [system, question(describeQuestion)], ...others };
  const answer = await readStream(
    await post("/chat/completions", { ...payload, stream_options: { include_usage: true } }),
  );
  expect(answer.content).toBe(sceneAnswer);
  expect(answer.totalTokens).toBeGreaterThan(100);
  const biased = await readStream(await post("/chat/completions", { ...payload, ...parameters }));
  expect(biased.content).not.toBe("");
});

test("native function calls continue with their results", async () => {
  const tools = [
    {
      type: "function",
      function: {
        name: "look",
        description: "Looks at a place of the picture.",
        parameters: { type: "object", properties: { place: { enum: ["center", "top left"] } }, required: ["place"] },
      },
    },
  ];
  const messages: object[] = [system, question("What is in the center?")];
  // `tool_choice` stands for a custom parameter of the model.
  const first = { stream: true, model, messages, tools, tool_choice: "required", max_tokens: 200 };
  const { calls } = await readStream(await post("/chat/completions", first));
  expect(calls.length).toBeGreaterThan(0);
  for (const { function: called } of calls) {
    expect([called.name, JSON.parse(called.arguments)]).toEqual(["look", { place: expect.any(String) }]);
  }
  messages.push(
    {
      role: "assistant",
      content: "",
      tool_calls: calls.map(({ id, function: called }) => ({ id, type: "function", function: called })),
    },
    ...calls.map(({ id }) => ({ role: "tool", tool_call_id: id, content: "A large blue square" })),
  );
  const { content } = await readStream(await post("/chat/completions", { stream: true, model, messages, tools }));
  expect(content).not.toBe("");
});

test("titles, tags and follow-ups are asked for without a stream", async () => {
  const content = `### Task:\nGenerate a concise title.\n### Output:\nJSON format: { "title": "your title" }\n<chat_history>\nUSER: Hi\n</chat_history>`;
  const response = await post("/chat/completions", {
    model,
    messages: [{ role: "user", content }],
    stream: false,
    max_tokens: 20,
  });
  expect(await response.json()).toMatchObject({ choices: [{ message: { content: expect.any(String) } }] });
});

test("Continue extends the last answer", async () => {
  const begun = sceneAnswer.slice(0, 29);
  const messages = [question(describeQuestion), { role: "assistant", content: begun }];
  const flags = { continue_final_message: true, add_generation_prompt: false };
  const { content } = await readStream(await post("/chat/completions", { stream: true, model, messages, ...flags }));
  expect(begun + content).toBe(sceneAnswer);
});

test("a connection of the type Responses sends items", async () => {
  const text = (type: string, value: string): object => ({ type, text: value });
  const response = await post("/responses", {
    stream: true,
    model,
    instructions: "You are helpful.",
    max_output_tokens: 200,
    temperature: 0,
    input: [
      { type: "message", role: "user", content: [text("input_text", "What is in the center?")] },
      { type: "message", role: "assistant", content: [text("output_text", "Let me look.")] },
      { type: "function_call", call_id: "call_1", name: "look", arguments: '{"place": "center"}' },
      { type: "function_call_output", call_id: "call_1", output: "A large blue square" },
      {
        type: "message",
        role: "user",
        content: [text("input_text", describeQuestion), { type: "input_image", image_url: pictureUrl, detail: "auto" }],
      },
    ],
    tools: [
      {
        type: "function",
        name: "look",
        description: "Looks.",
        parameters: { type: "object", properties: {} },
        strict: false,
      },
    ],
  });
  const events = (await response.text())
    .split("\n")
    .filter((line) => line.startsWith("data:"))
    .map((line) => JSON.parse(line.slice("data:".length)) as { readonly type: string; readonly delta?: string });
  expect(events.at(-1)!.type).toBe("response.completed");
  expect(events.map(({ type, delta }) => (type === "response.output_text.delta" ? delta : "")).join("")).not.toBe("");
});

test("an error is one that its page can show, and Stop ends the answer", async () => {
  const messages = [question(describeQuestion)];
  const refused = await post("/chat/completions", { stream: true, model: "another", messages });
  expect([refused.status, await refused.json()]).toEqual([
    404,
    { error: expect.objectContaining({ message: expect.any(String) }) },
  ]);
  const controller = new AbortController();
  const payload = { stream: true, model, messages, max_tokens: ALL_TOKENS };
  const { body } = await post("/chat/completions", payload, controller.signal);
  await body!.getReader().read();
  controller.abort();
  await expect.poll(() => service.log()).toMatch(/"path":"\/v1\/chat\/completions","status":499/);
});
