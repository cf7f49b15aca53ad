/** Custom tools of chat completions, whose input is a text: the model sees a function with one argument. */
import OpenAI from "openai";
import { expect, test } from "vitest";

import { wireSchemas } from "../../support/requests/wire-schemas.ts";
import { createTestApp, serveApp } from "../../support/service/test-app.ts";
import type { TestApp } from "../../support/service/test-app.ts";

const path = "/v1/chat/completions";
const format = { type: "grammar", grammar: { syntax: "lark", definition: 'start: "+" /.+/' } } as const;
const patch = { type: "custom", custom: { name: "apply_patch", description: "Edits files.", format } } as const;
const weather = { type: "function", function: { name: "get_weather", parameters: { type: "object" } } } as const;
const text = '*** Begin Patch\n+ "a\\b"\n*** End Patch';
const callOf = (name: string, given: object): string =>
  `<tool_call>\n${JSON.stringify({ name, arguments: given })}\n</tool_call>`;
const patchCall = callOf("apply_patch", { input: text });
const weatherCall = callOf("get_weather", { city: "Oslo" });
const messages = [{ role: "user" as const, content: "a" }];
const calledPatch = {
  id: expect.stringMatching(/^call_/),
  type: "custom",
  custom: { name: "apply_patch", input: text },
};

async function complete(app: TestApp, body: object): Promise<Record<string, unknown>> {
  const response = await app.post(path, { messages, ...body });
  expect(response.status).toBe(200);
  return (await response.json()) as Record<string, unknown>;
}

test("the model sees a function with the grammar in its description", async () => {
  const app = createTestApp();
  await complete(app, { tools: [patch, { type: "custom", custom: { name: "note", format: { type: "text" } } }] });
  const parameters = { type: "object", properties: { input: { type: "string" } }, required: ["input"] };
  expect(app.engine.requests.at(0)!.prompt).toMatchObject({
    tools: [
      {
        name: "apply_patch",
        description: `Edits files.\n\nThe input must match this lark grammar:\n${format.grammar.definition}`,
        parameters,
      },
      { name: "note", description: null, parameters },
    ],
  });
});

test("calls of custom tools have a text, those of functions have arguments", async () => {
  const answer = await complete(createTestApp({ script: [patchCall, weatherCall] }), { tools: [patch, weather] });
  wireSchemas("openai-completions.json")("CreateChatCompletionResponse", answer);
  expect(answer["choices"]).toMatchObject([
    {
      finish_reason: "tool_calls",
      message: { content: null, tool_calls: [calledPatch, { type: "function", function: { name: "get_weather" } }] },
    },
  ]);
});

test("openai's stream joins the pieces of both kinds of calls", async () => {
  const script = [patchCall.slice(0, 60), patchCall.slice(60, 75), patchCall.slice(75), weatherCall, patchCall];
  await using server = await serveApp(createTestApp({ script }));
  const client = new OpenAI({ baseURL: `${server.baseUrl}/v1`, apiKey: "none" });
  const stream = client.chat.completions.stream({ model: "tiny", messages, tools: [patch, weather] });
  const { choices } = await stream.finalChatCompletion();
  expect(choices[0]).toMatchObject({
    finish_reason: "tool_calls",
    message: {
      tool_calls: [calledPatch, { function: { name: "get_weather", arguments: '{"city":"Oslo"}' } }, calledPatch],
    },
  });
});

test("a call and its result go back as those of a function", async () => {
  const app = createTestApp();
  const call = { id: "call_1", type: "custom", custom: { name: "apply_patch", input: text } };
  const result = { role: "tool", tool_call_id: "call_1", content: "Done." };
  await complete(app, {
    tools: [patch],
    messages: [...messages, { role: "assistant", content: null, tool_calls: [call] }, result],
  });
  expect(app.engine.requests.at(0)!.prompt).toMatchObject({
    messages: [
      { role: "user" },
      { toolCalls: [{ id: "call_1", name: "apply_patch", arguments: { input: text } }] },
      { role: "tool", toolCallId: "call_1", content: "Done." },
    ],
  });
});

const named = { type: "custom", custom: { name: "apply_patch" } };

test.for<[name: string, choice: object]>([
  ["a named tool", named],
  ["allowed_tools", { type: "allowed_tools", allowed_tools: { mode: "required", tools: [named] } }],
])("the choice of %s requires a call", async ([, choice]) => {
  const app = createTestApp({ script: [patchCall] });
  await complete(app, { tools: [patch, weather], tool_choice: choice });
  const { structuredOutput } = app.engine.requests.at(0)!.samplingParams;
  expect(JSON.stringify(structuredOutput)).toContain("apply_patch");
  expect(JSON.stringify(structuredOutput)).not.toContain("get_weather");
});

test.for<[problem: string, body: object, param: string]>([
  ["without a name", { tools: [{ type: "custom", custom: {} }] }, "tools[0].custom.name"],
  ["with the name of another", { tools: [patch, patch] }, "tools[1].custom.name"],
  [
    "with a grammar in Responses' form",
    { tools: [{ type: "custom", custom: { name: "a", format: { type: "grammar", syntax: "lark" } } }] },
    "tools[0].custom.format.grammar",
  ],
  [
    "that is called without an input",
    { messages: [{ role: "assistant", tool_calls: [{ id: "a", ...named }] }] },
    "messages[0].tool_calls[0].custom.input",
  ],
])("a custom tool %s is rejected by its path", async ([, body, param]) => {
  const response = await createTestApp().post(path, { messages, ...body });
  expect(response.status).toBe(400);
  expect(await response.json()).toMatchObject({ error: { param } });
});
