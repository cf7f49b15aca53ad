/** Items of the type `additional_tools` of `/v1/responses`, in which Codex sends its tools for some models. */
import { expect, test } from "vitest";

import { pythonicFormat } from "../../../functions/generation/parsed-output/formats/pythonic.ts";
import { createTestApp } from "../../support/service/test-app.ts";

const path = "/v1/responses";
const user = { role: "user", content: "a" };
const toolOf = (name: string, description: string) => ({ type: "function", name, description });
const added = (...tools: readonly object[]) => ({ type: "additional_tools", role: "developer", tools });

async function toolsFor(body: object): Promise<{ readonly seen: unknown; readonly answer: Record<string, unknown> }> {
  const app = createTestApp();
  const response = await app.post(path, body);
  expect(response.status).toBe(200);
  const { prompt } = app.engine.requests.at(0)!;
  expect(prompt).toMatchObject({ messages: [user] });
  return { seen: Reflect.get(prompt, "tools"), answer: (await response.json()) as Record<string, unknown> };
}

test("the model sees them with the request's own, the later of two with one name", async () => {
  const tools = [toolOf("own", "A."), toolOf("both", "B.")];
  const input = [added(toolOf("both", "C."), toolOf("twice", "D.")), user, added(toolOf("twice", "E."))];
  const { seen, answer } = await toolsFor({ tools, input });
  expect(seen).toMatchObject([
    { name: "own", description: "A." },
    { name: "both", description: "C." },
    { name: "twice", description: "E." },
  ]);
  expect(answer["tools"]).toMatchObject(tools);
});

test("an error of one names its place in the body", async () => {
  const strict = { ...toolOf("a", "A."), strict: true };
  const { post } = createTestApp({ config: { outputFormats: { toolCalls: pythonicFormat, reasoning: null } } });
  const response = await post(path, { input: [user, added({ type: "web_search" }, strict)] });
  expect(response.status).toBe(400);
  expect(await response.json()).toMatchObject({
    error: {
      param: "input[1].tools[1].strict",
      message: expect.stringMatching(/^input\[1\]\.tools\[1\]\.strict cannot/),
    },
  });
});

test("calls of them have the client's names and forms", async () => {
  const call = '<tool_call>\n{"name": "functions__exec", "arguments": {"input": "ls"}}\n</tool_call>';
  const namespace = { type: "namespace", name: "functions", tools: [{ type: "custom", name: "exec" }] };
  const app = createTestApp({ script: [call] });
  const response = await app.post(path, { input: [added(namespace, { type: "web_search" }), user] });
  expect(response.headers.get("x-fovea-warning")).toContain("web_search");
  expect(await response.json()).toMatchObject({
    output: [{ type: "custom_tool_call", namespace: "functions", name: "exec", input: "ls" }],
  });
});

test.for<[what: string, body: object, param: string]>([
  [
    "that the choice does not find",
    { input: [added(), user], tool_choice: { type: "function", name: "a" } },
    "tool_choice",
  ],
  ["with a wrong name", { input: [user, added(toolOf("a b", "A."))] }, "input[1].tools[0].name"],
])("tools %s are rejected by path", async ([, body, param]) => {
  const response = await createTestApp().post(path, body);
  expect(response.status).toBe(400);
  expect(await response.json()).toMatchObject({ error: { param: expect.stringContaining(param) } });
});
