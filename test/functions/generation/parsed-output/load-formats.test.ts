import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

import { loadConfiguredFormats } from "../../../../functions/generation/parsed-output/load-formats.ts";
import { modelFormatsOf } from "../../../../functions/generation/parsed-output/model-formats.ts";
import { loadConfig } from "../../../../functions/settings/config.ts";
import { createScriptedEngine } from "../../../support/engine/scripted-engine.ts";
import { chatBody, createTestApp } from "../../../support/service/test-app.ts";
import { parseAll, parsingOf } from "./parsed.ts";

const folder = fileURLToPath(new URL("plug-ins", import.meta.url));
const load = (environment: Readonly<Record<string, string>>) =>
  loadConfiguredFormats(loadConfig({ PARSER_PATH: folder, ...environment }));

test.for([
  ["hermes", "hermes"],
  ["qwen3_xml", "qwen3_coder"],
  ["llama4_pythonic", "pythonic"],
])("TOOL_CALL_PARSER %s is the format %s", async ([name, expected]) => {
  expect((await load({ TOOL_CALL_PARSER: name! })).toolCalls?.name).toBe(expected);
});

test("formats that are not set are those of the chat template", async () => {
  const engine = createScriptedEngine(() => []);
  Object.assign(engine.modelInfo!, { chatTemplate: "<tool_call>\n<function= … <think>" });
  const shown = modelFormatsOf(engine, await load({}));
  expect([shown.toolCalls.name, shown.reasoning?.name]).toEqual(["qwen3_coder", "qwen3"]);
  const set = modelFormatsOf(engine, await load({ TOOL_CALL_PARSER: "mistral", REASONING_PARSER: "none" }));
  expect([set.toolCalls.name, set.reasoning]).toEqual(["mistral", null]);
});

test("a module in the folder adds formats", async () => {
  const formats = await load({ TOOL_CALL_PARSER: "shouted:shoutedCalls", REASONING_PARSER: "shouted:musing" });
  expect(formats.reasoning).toEqual({ name: "musing", start: "<muse>", end: "</muse>", startsInside: false });
  const parsing = parsingOf(formats.toolCalls!);
  expect(parseAll(parsing, ['Hi\nCALL stop-it {"a"', ": 1}"])).toEqual({
    content: "Hi",
    reasoning: "",
    calls: [["stop-it", '{"a": 1}']],
  });
});

test("a module's parser that throws gives the rest as text", async () => {
  const { toolCalls } = await load({ TOOL_CALL_PARSER: "shouted:throwing" });
  expect(parseAll(parsingOf(toolCalls!), ["a", "b!", "c"]).content).toBe("ab!c");
});

test.for([
  [{ TOOL_CALL_PARSER: "hermess" }, /TOOL_CALL_PARSER is "hermess": expected hermes, .*, or module:Export\./],
  [{ REASONING_PARSER: "deep" }, /REASONING_PARSER is "deep": expected qwen3, .*, none, or module:Export\./],
  [
    { TOOL_CALL_PARSER: "nowhere:format" },
    /TOOL_CALL_PARSER: nowhere:format could not be loaded: the module was not found/,
  ],
  [{ TOOL_CALL_PARSER: "shouted:missing" }, /could not be loaded: .*missing/],
  [{ TOOL_CALL_PARSER: "shouted:broken" }, /could not be loaded: createParser: must be a function/],
  [{ REASONING_PARSER: "shouted:ambiguous" }, /end: must contain its first character only once/],
  [{ REASONING_PARSER: "shouted:broken" }, /could not be loaded: start: must be a string/],
] as const)("%j is rejected when the service starts", async ([environment, message]) => {
  await expect(load(environment)).rejects.toThrow(
    expect.objectContaining({ name: "ConfigError", problems: [expect.stringMatching(message)] }),
  );
});

test("an answer in the template's format is parsed over HTTP, whole and streamed", async () => {
  const script = [
    "<th",
    "ink>Look it up.</thi",
    'nk>\n\n<tool_call>{"name": "look_',
    'up", "arguments": {"a": ',
    "1}}</tool_call>",
  ];
  const { post, engine, bodies } = createTestApp({ script });
  Object.assign(engine.modelInfo!, { chatTemplate: "<tool_call> <think>" });
  const body = { ...chatBody, tools: [{ type: "function", function: { name: "look_up" } }] };
  const whole = (await (await post("/v1/chat/completions", body)).json()) as object;
  const call = { id: expect.any(String), type: "function", function: { name: "look_up", arguments: '{"a": 1}' } };
  expect(whole).toMatchObject({
    choices: [
      {
        finish_reason: "tool_calls",
        message: { content: null, reasoning_content: "Look it up.", reasoning: "Look it up.", tool_calls: [call] },
      },
    ],
  });
  expect(engine.requests[0]).toMatchObject({
    prompt: { tools: [{ name: "look_up", parameters: null, strict: false }] },
    samplingParams: {
      keptSpecialTokens: ["<tool_call>", "</tool_call>"],
      reasoning: { start: "<think>", end: "</think>", startsInside: false, tokenBudget: null },
    },
  });
  const streamed = await (await post("/v1/chat/completions", { ...body, stream: true })).text();
  const deltas = streamed
    .split("\n\n")
    .filter((event) => event.startsWith("data: {"))
    .map(
      (event) =>
        (JSON.parse(event.slice(6)) as { choices: { delta: object; finish_reason: string | null }[] }).choices[0]!,
    );
  expect(deltas.map(({ delta }) => delta)).toEqual([
    { role: "assistant", content: "" },
    { reasoning_content: "Look it up.", reasoning: "Look it up." },
    {
      tool_calls: [
        { index: 0, id: expect.any(String), type: "function", function: { name: "look_up", arguments: '{"a": ' } },
      ],
    },
    { tool_calls: [{ index: 0, function: { arguments: "1}" } }] },
  ]);
  expect(deltas.at(-1)?.finish_reason).toBe("tool_calls");
  await bodies.close();
});

test("variables of the template and the effort reach the engine", async () => {
  const { post, engine, bodies } = createTestApp();
  await post("/v1/chat/completions", { ...chatBody, reasoning_effort: "none", chat_template_kwargs: { mood: 1 } });
  await post("/v1/chat/completions", { ...chatBody, reasoning_effort: "high" });
  await post("/v1/chat/completions", { ...chatBody, tools: [], tool_choice: "auto" });
  expect(engine.requests.map(({ prompt }) => prompt)).toMatchObject([
    { templateArguments: { reasoning_effort: "none", enable_thinking: false, mood: 1 } },
    { templateArguments: { reasoning_effort: "high" } },
    expect.not.objectContaining({ tools: expect.anything(), templateArguments: expect.anything() }),
  ]);
  await bodies.close();
});
