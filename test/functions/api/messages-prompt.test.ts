/** What the model sees of a request to `/v1/messages`. */
import { expect, test } from "vitest";

import { EngineError } from "../../../engine/index.ts";
import type { ChatPromptInput } from "../../../engine/index.ts";
import { thinkingFormats } from "../../support/requests/thinking-formats.ts";
import { createTestApp } from "../../support/service/test-app.ts";
import { ask, hello, image, path, weather } from "./message-parts.ts";

const billing = "x-anthropic-billing-header: cc_version=2.1.240.3d9; cc_entrypoint=cli; cch=74943;";

test.for<[name: string, content: unknown, isContinued: boolean, numTurns: number]>([
  ["a text", "It is", true, 2],
  ["blocks of text", [{ type: "text", text: "It is" }], true, 2],
  ["thinking alone", [{ type: "thinking", thinking: "Hm", signature: "" }], true, 2],
  [
    "a call",
    [
      { type: "text", text: "a" },
      { type: "tool_use", id: "b", name: "c", input: {} },
    ],
    false,
    2,
  ],
  ["an empty text", "", false, 1],
  ["no blocks", [], false, 1],
  ["thinking that only Anthropic can read", [{ type: "redacted_thinking", data: "AAAA" }], false, 1],
])(
  "a last turn of the assistant with %s is continued, complete or left out",
  async ([, content, isContinued, numTurns]) => {
    const { engine, post } = createTestApp();
    const messages = [
      { role: "user", content: "Which?" },
      { role: "assistant", content },
    ];
    await post(path, { max_tokens: 9, messages });
    const prompt = engine.requests.at(0)!.prompt as ChatPromptInput;
    expect(prompt.addGenerationPrompt).toBe(!isContinued);
    const { continueFinalMessage = false, messages: turns } = prompt;
    expect([continueFinalMessage, turns.length]).toEqual([isContinued, numTurns]);
  },
);

test.for<[content: unknown, path: string]>([
  ["It is ", "messages.1.content"],
  [[{ type: "text", text: "It is\n" }], "messages.1.content.0.text"],
])("a last turn of the assistant cannot end with white space", async ([content, field]) => {
  const messages = [
    { role: "user", content: "Which?" },
    { role: "assistant", content },
  ];
  const response = await createTestApp().post(path, { max_tokens: 9, messages });
  expect(response.status).toBe(400);
  const { error } = (await response.json()) as { readonly error: { readonly message: string } };
  expect(error.message.replaceAll(/\[(\d+)\]/g, ".$1")).toMatch(
    new RegExp(`^${field.replaceAll(".", "\\.")} must not end with white space`),
  );
});

test("every field reaches the engine as the same field of a chat completion", async () => {
  const shared = { temperature: 0.5, top_p: 0.9, top_k: 40, max_tokens: 9, seed: 7, cache_salt: "mine" };
  const { engine, post } = createTestApp({ config: { outputFormats: thinkingFormats } });
  await post(path, {
    ...shared,
    system: [{ type: "text", text: "Be brief.", cache_control: { type: "ephemeral" } }],
    messages: [
      {
        role: "user",
        content: [
          { type: "text", text: "Which?" },
          image,
          { type: "image", source: { type: "url", url: "https://a.example/b.png" } },
        ],
      },
      {
        role: "assistant",
        content: [
          { type: "thinking", thinking: "Hm.", signature: "" },
          { type: "redacted_thinking", data: "AAAA" },
          { type: "text", text: "Let me look." },
          { type: "tool_use", id: "toolu_1", name: "get_weather", input: { city: "Oslo" } },
        ],
      },
      {
        role: "user",
        content: [
          {
            type: "tool_result",
            tool_use_id: "toolu_1",
            is_error: false,
            content: [{ type: "text", text: "A map:" }, image],
          },
          { type: "text", text: "And now?" },
        ],
      },
    ],
    tools: [{ ...weather, type: "custom" }],
    tool_choice: { type: "auto", disable_parallel_tool_use: true },
    stop_sequences: ["END"],
    thinking: { type: "enabled", budget_tokens: 64 },
    output_config: { effort: "low" },
    metadata: { user_id: "me" },
  });
  const url = "data:image/png;base64,AAAA";
  await post("/v1/chat/completions", {
    ...shared,
    messages: [
      { role: "system", content: "Be brief." },
      {
        role: "user",
        content: [
          { type: "text", text: "Which?" },
          { type: "image_url", image_url: { url } },
          { type: "image_url", image_url: { url: "https://a.example/b.png" } },
        ],
      },
      {
        role: "assistant",
        reasoning_content: "Hm.",
        content: "Let me look.",
        tool_calls: [
          { id: "toolu_1", type: "function", function: { name: "get_weather", arguments: '{"city":"Oslo"}' } },
        ],
      },
      {
        role: "tool",
        tool_call_id: "toolu_1",
        content: [
          { type: "text", text: "A map:" },
          { type: "image_url", image_url: { url } },
        ],
      },
      { role: "user", content: "And now?" },
    ],
    tools: [
      {
        type: "function",
        function: { name: weather.name, description: weather.description, parameters: weather.input_schema },
      },
    ],
    tool_choice: "auto",
    parallel_tool_calls: false,
    stop: ["END"],
    chat_template_kwargs: { enable_thinking: true },
    thinking_token_budget: 64,
    reasoning_effort: "low",
  });
  const ours = engine.requests.at(0)!;
  const chat = engine.requests.at(1)!;
  expect(ours).toEqual({ ...chat, requestId: ours.requestId });
});

test("system messages among the others are part of the user's turn, as Claude Code sends them", async () => {
  const { request } = await ask({
    max_tokens: 9,
    system: [{ type: "text", text: "You are an agent." }],
    messages: [
      { role: "user", content: [{ type: "text", text: "Fix it." }] },
      { role: "system", content: "Agents: planner." },
    ],
  });
  expect(request.prompt).toMatchObject({
    addGenerationPrompt: true,
    messages: [
      { role: "system", content: "You are an agent." },
      { role: "user", content: "Fix it.\n\nAgents: planner." },
    ],
  });
});

test("adjacent turns of one role are one turn", async () => {
  const { request } = await ask({
    max_tokens: 9,
    messages: [
      { role: "user", content: "Hello?" },
      { role: "user", content: [image, { type: "text", text: "Which?" }] },
      { role: "assistant", content: "A square." },
      { role: "assistant", content: "It is blue." },
      { role: "user", content: "Sure?" },
    ],
  });
  expect(request.prompt).toMatchObject({
    messages: [
      {
        role: "user",
        content: [{ type: "text", text: "Hello?" }, { type: "image" }, { type: "text", text: "Which?" }],
      },
      { role: "assistant", content: "A square.\n\nIt is blue." },
      { role: "user", content: "Sure?" },
    ],
  });
});

test.for<[name: string, system: unknown, content: unknown, expected: string]>([
  [
    "a block of its own",
    [
      { type: "text", text: billing },
      { type: "text", text: "Be brief." },
    ],
    "A note.",
    "Be brief.",
  ],
  ["the first line of a text", `${billing}\nBe brief.`, "A note.", "Be brief."],
  [
    "a message",
    "Be brief.",
    [
      { type: "text", text: billing },
      { type: "text", text: "A note." },
    ],
    "Be brief.",
  ],
])("Claude Code's note about its request is not part of the prompt: %s", async ([, system, content, expected]) => {
  const { request } = await ask({ ...hello, system, messages: [...hello.messages, { role: "system", content }] });
  expect(request.prompt).toMatchObject({
    messages: [
      { role: "system", content: expected },
      { role: "user", content: "Hello?\n\nA note." },
    ],
  });
});

test("a prompt of Claude Code's note alone has no system message", async () => {
  const { request } = await ask({ ...hello, system: [{ type: "text", text: billing }] });
  expect(request.prompt).toMatchObject({ messages: [{ role: "user", content: "Hello?" }] });
});

test.for<[object, object]>([
  [{ thinking: { type: "disabled" } }, { enable_thinking: false }],
  [{ thinking: { type: "adaptive" } }, { enable_thinking: true }],
  [{ thinking: { type: "disabled" }, chat_template_kwargs: { enable_thinking: true } }, { enable_thinking: true }],
])("%j sets variables of the chat template", async ([fields, expected]) => {
  const { request } = await ask({ ...hello, ...fields });
  expect(request.prompt).toMatchObject({ templateArguments: expected });
});

test.for([
  ["output_config.format", (format: object) => ({ output_config: { format } })],
  ["output_format", (format: object) => ({ output_format: format })],
] as const)("%s prescribes the form of the text", async ([name, fieldOf]) => {
  const schema = { type: "object", properties: { shape: { type: "string" } } };
  const { request } = await ask({ ...hello, ...fieldOf({ type: "json_schema", schema }) });
  expect(request.samplingParams.structuredOutput).toEqual({ kind: "json-schema", schema: JSON.stringify(schema) });
  const wrong = await createTestApp().post(path, { ...hello, ...fieldOf({ type: "yaml" }) });
  expect(await wrong.json()).toMatchObject({ error: { message: expect.stringContaining(`${name}.type must be`) } });
  const refusal = new EngineError("invalid_argument", "It has no end.", {
    parameter: "samplingParams.structuredOutput",
  });
  const refused = createTestApp({ script: [refusal] });
  const response = await refused.post(path, { ...hello, ...fieldOf({ type: "json_schema", schema }) });
  expect(await response.json()).toMatchObject({ error: { message: `${name}: It has no end.` } });
});

test("documents and results of searches are shown as text", async () => {
  const about = { title: "Harbours", context: "From 1999" };
  const content = [
    { type: "document", source: { type: "text", media_type: "text/plain", data: "Hamburg." }, ...about },
    { type: "document", source: { type: "content", content: [{ type: "text", text: "Bremen." }] } },
    { type: "text", text: "Which is larger?" },
  ];
  const found = { type: "search_result", source: "https://example.org/a", title: "Ports", content: content.slice(2) };
  const calls = [
    { role: "assistant", content: [{ type: "tool_use", id: "1", name: "search", input: {} }] },
    { role: "user", content: [{ type: "tool_result", tool_use_id: "1", content: [found] }] },
  ];
  const { request } = await ask({ ...hello, messages: [{ role: "user", content }, ...calls] });
  const { messages } = request.prompt as ChatPromptInput;
  expect(messages.at(0)!.content).toEqual([
    {
      type: "text",
      text:
        "<document>\n<title>\nHarbours\n</title>\n<context>\nFrom 1999\n</context>\n" +
        "<document_content>\nHamburg.\n</document_content>\n</document>",
    },
    { type: "text", text: "<document>\n<document_content>\nBremen.\n</document_content>\n</document>" },
    { type: "text", text: "Which is larger?" },
  ]);
  expect(messages.at(-1)!.content).toBe(
    "<search_result>\n<source>\nhttps://example.org/a\n</source>\n<title>\nPorts\n</title>\n" +
      "<content>\nWhich is larger?\n</content>\n</search_result>",
  );
});
