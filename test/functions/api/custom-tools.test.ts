/** Custom tools of `/v1/responses`, whose input is a text: the model sees a function with one argument. */
import OpenAI from "openai";
import { describe, expect, test } from "vitest";

import { readEvents } from "../../support/requests/read-events.ts";
import { createTestApp, serveApp } from "../../support/service/test-app.ts";
import type { TestApp } from "../../support/service/test-app.ts";

const path = "/v1/responses";
const grammar = { type: "grammar", syntax: "lark", definition: 'start: "+" /.+/' } as const;
const patch = { type: "custom", name: "apply_patch", description: "Edits files.", format: grammar } as const;
const text = '*** Begin Patch\n+ "a\\b"\n*** End Patch';
const call = `<tool_call>\n${JSON.stringify({ name: "apply_patch", arguments: { input: text } })}\n</tool_call>`;
const called = { type: "custom_tool_call", status: "completed", name: "apply_patch", input: text };

async function respond(app: TestApp, body: object): Promise<Record<string, unknown>> {
  const response = await app.post(path, body);
  expect(response.status).toBe(200);
  expect(response.headers.get("x-fovea-warning")).toBeNull();
  return (await response.json()) as Record<string, unknown>;
}

test("the model sees a function with the grammar in its description", async () => {
  const app = createTestApp();
  const answer = await respond(app, { input: "a", tools: [patch, { type: "custom", name: "note" }] });
  const parameters = {
    type: "object",
    properties: { input: { type: "string" } },
    required: ["input"],
    additionalProperties: false,
  };
  expect(app.engine.requests.at(0)!.prompt).toMatchObject({
    tools: [
      {
        name: "apply_patch",
        description: `Edits files.\n\nThe input must match this lark grammar:\n${grammar.definition}`,
        parameters,
      },
      { name: "note", description: null, parameters },
    ],
  });
  expect(answer["tools"]).toEqual([patch, { type: "custom", name: "note" }]);
});

describe("a call", () => {
  test("is an item with the text", async () => {
    const answer = await respond(createTestApp({ script: [call] }), { input: "a", tools: [patch] });
    const item = { ...called, id: expect.stringMatching(/^ctc_/), call_id: expect.stringMatching(/^call_/) };
    expect(answer["output"]).toEqual([item]);
    expect(answer["status"]).toBe("completed");
  });

  test("in a namespace has both names", async () => {
    const script = [call.replace("apply_patch", "functions__apply_patch")];
    const tools = [{ type: "namespace", name: "functions", tools: [patch] }];
    const answer = await respond(createTestApp({ script }), { input: "a", tools });
    expect(answer["output"]).toMatchObject([{ ...called, namespace: "functions" }]);
  });

  test.for<[what: string, given: string]>([
    ["with other arguments", '{"patch": "a"}'],
    ["with an input that is no text", '{"input": 5}'],
  ])("%s has these as its text", async ([, given]) => {
    const script = [`<tool_call>\n{"name": "apply_patch", "arguments": ${given}}\n</tool_call>`];
    const { output } = await respond(createTestApp({ script }), { input: "a", tools: [patch] });
    expect(output).toMatchObject([{ type: "custom_tool_call", input: given }]);
  });

  test("is streamed as a text at its end", async () => {
    const pieces = [call.slice(0, 60), call.slice(60, 75), call.slice(75)];
    const app = createTestApp({ script: pieces });
    const events = await readEvents(await app.post(path, { input: "a", tools: [patch], stream: true }));
    const kinds = events.map(({ name }) => name!.replace("response.", ""));
    expect(kinds.slice(2)).toEqual([
      "output_item.added",
      "custom_tool_call_input.delta",
      "custom_tool_call_input.done",
      "output_item.done",
      "completed",
    ]);
    const [added, delta, done, ended] = events.slice(2).map(({ data }) => data);
    expect(added).toMatchObject({ item: { ...called, status: "in_progress", input: "" } });
    const { id } = added!["item"] as { readonly id: string };
    expect(delta).toMatchObject({ item_id: id, output_index: 0, delta: text, sequence_number: 3 });
    expect(done).toMatchObject({ item_id: id, output_index: 0, input: text, sequence_number: 4 });
    expect(ended).toMatchObject({ item: { ...called, id } });
  });

  test("and its result go back as those of a function", async () => {
    const app = createTestApp();
    const item = { ...called, call_id: "call_1" };
    const result = { type: "custom_tool_call_output", call_id: "call_1", output: "Done." };
    await respond(app, {
      tools: [patch],
      input: [{ role: "user", content: "a" }, { ...item, namespace: "functions" }, result, item, result],
    });
    expect(app.engine.requests.at(0)!.prompt).toMatchObject({
      messages: [
        { role: "user" },
        { toolCalls: [{ id: "call_1", name: "functions__apply_patch", arguments: { input: text } }] },
        { role: "tool", toolCallId: "call_1", content: "Done." },
        { toolCalls: [{ name: "apply_patch" }] },
        { role: "tool" },
      ],
    });
  });
});

test.for<[name: string, choice: object]>([
  ["a named tool", { type: "custom", name: "apply_patch" }],
  ["allowed_tools", { type: "allowed_tools", mode: "required", tools: [{ type: "custom", name: "apply_patch" }] }],
])("the choice of %s requires a call", async ([, choice]) => {
  const app = createTestApp({ script: [call] });
  const tools = [patch, { type: "custom", name: "note" }];
  const answer = await respond(app, { input: "a", tools, tool_choice: choice });
  expect(answer["tool_choice"]).toEqual(choice);
  const { structuredOutput } = app.engine.requests.at(0)!.samplingParams;
  expect(JSON.stringify(structuredOutput)).toContain("apply_patch");
  expect(JSON.stringify(structuredOutput)).not.toContain("note");
});

test("a tool with an unknown format is rejected", async () => {
  const tools = [{ ...patch, format: { type: "xml" } }];
  const response = await createTestApp().post(path, { input: "a", tools });
  expect(response.status).toBe(400);
  expect(await response.json()).toMatchObject({
    error: { param: "tools[0].format.type", message: expect.stringContaining("must be") },
  });
});

test("openai's client runs the tool and sends its result", async () => {
  const scripts = [[call.slice(0, 70), call.slice(70)], ["Done."]];
  let turn = 0;
  const app = createTestApp({ script: () => scripts[turn++]! });
  await using server = await serveApp(app);
  const client = new OpenAI({ baseURL: `${server.baseUrl}/v1`, apiKey: "none", maxRetries: 0 });
  const body = { model: "tiny", tools: [patch] };
  const input: OpenAI.Responses.ResponseInput = [{ role: "user", content: "Edit it." }];
  const first = await client.responses.stream({ ...body, input }).finalResponse();
  input.push(...(first.output as OpenAI.Responses.ResponseInputItem[]));
  for (const item of first.output) {
    if (item.type !== "custom_tool_call") continue;
    expect(item.input).toBe(text);
    input.push({ type: "custom_tool_call_output", call_id: item.call_id, output: "Done." });
  }
  const second = await client.responses.stream({ ...body, input }).finalResponse();
  expect(second.output_text).toBe("Done.");
  expect(app.engine.requests.at(1)!.prompt).toMatchObject({
    messages: [{ role: "user" }, { toolCalls: [{ name: "apply_patch" }] }, { role: "tool", content: "Done." }],
  });
});
