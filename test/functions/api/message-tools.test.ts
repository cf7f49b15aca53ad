/** Tools of `/v1/messages` that are loaded in the course of a conversation, as Claude Code's search for tools does it. */
import { describe, expect, test } from "vitest";

import { EngineError } from "../../../engine/index.ts";
import type { ChatPromptInput } from "../../../engine/index.ts";
import { createTestApp } from "../../support/service/test-app.ts";
import { weather } from "./message-parts.ts";

const path = "/v1/messages";
const search = { name: "search", input_schema: { type: "object" } };
const deferred = { ...weather, name: "deferred", defer_loading: true };
const other = { ...weather, name: "other", defer_loading: true };

async function promptOf(fields: object): Promise<ChatPromptInput> {
  const { engine, post } = createTestApp();
  const response = await post(path, { max_tokens: 9, ...fields });
  expect(response.status).toBe(200);
  const { prompt } = engine.requests.at(0)!;
  if (prompt.kind !== "chat") throw new Error("The prompt is no conversation.");
  return prompt;
}

const namesOf = ({ tools }: ChatPromptInput): readonly string[] => (tools ?? []).map(({ name }) => name);
const user = { role: "user", content: "Weather?" };
const call = {
  role: "assistant",
  content: [{ type: "tool_use", id: "toolu_1", name: "search", input: { query: "weather" } }],
};
const found = (...names: readonly string[]) => ({
  role: "user",
  content: [
    {
      type: "tool_result",
      tool_use_id: "toolu_1",
      content: names.map((name) => ({ type: "tool_reference", tool_name: name })),
    },
  ],
});
const changes = (...content: readonly object[]) => ({ role: "system", content });
const add = (name: string) => ({ type: "tool_addition", tool: { type: "tool_reference", name } });
const remove = (name: string) => ({ type: "tool_removal", tool: { type: "tool_reference", name } });
const define = (definition: object) => ({ type: "tool_addition", tool: { type: "tool_definition", definition } });

describe("the model sees", () => {
  test.for<[what: string, fields: object, names: readonly string[]]>([
    ["no deferred tool at first", { tools: [deferred, search], messages: [user] }, ["search"]],
    [
      "a deferred tool that a result names, after the others",
      { tools: [deferred, search, other], messages: [user, call, found("deferred")] },
      ["search", "deferred"],
    ],
    [
      "no tool that a result names but nothing defines",
      { tools: [search], messages: [user, call, found("gone")] },
      ["search"],
    ],
    [
      "every tool beside a search that only Anthropic's service runs",
      { tools: [{ type: "tool_search_tool_regex_20251119", name: "s" }, deferred, other], messages: [user] },
      ["deferred", "other"],
    ],
    [
      "a tool that a system message adds",
      { tools: [deferred, search], messages: [user, changes(add("deferred"))] },
      ["search", "deferred"],
    ],
    [
      "no tool that a system message removes",
      { tools: [weather, search], messages: [user, changes(remove("get_weather"))] },
      ["search"],
    ],
    [
      "a tool that was removed and added again",
      { tools: [weather, search], messages: [user, changes(remove("get_weather"), add("get_weather"))] },
      ["search", "get_weather"],
    ],
    [
      "a tool that a message defines",
      { tools: [search], messages: [user, changes(define(weather))] },
      ["search", "get_weather"],
    ],
    [
      "no tools of servers that Anthropic's service connects to",
      {
        tools: [search],
        messages: [user, changes({ type: "tool_addition", tool: { type: "mcp_toolset_reference", server_name: "a" } })],
      },
      ["search"],
    ],
  ])("%s", async ([, fields, names]) => {
    expect(namesOf(await promptOf(fields))).toEqual(names);
  });

  test("the definition that a message gives, instead of the one in tools", async () => {
    const later = { ...weather, description: "The weather tomorrow." };
    const { tools } = await promptOf({ tools: [weather], messages: [user, changes(define(later))] });
    expect(tools).toMatchObject([{ name: "get_weather", description: "The weather tomorrow." }]);
  });

  test("the names of the tools in the result of a search", async () => {
    const { messages } = await promptOf({ tools: [search, deferred], messages: [user, call, found("deferred")] });
    expect(messages.at(-1)).toMatchObject({ role: "tool", content: "Loaded the tool deferred." });
  });

  test("no message that only changes tools", async () => {
    const { messages } = await promptOf({ tools: [deferred], messages: [user, changes(add("deferred"))] });
    expect(messages).toEqual([{ role: "user", content: "Weather?" }]);
    const alone = await promptOf({ tools: [deferred], messages: [changes(add("deferred"))] });
    expect(alone.messages).toEqual([{ role: "user", content: "" }]);
  });
});

test("the model sees a system message that the next one of the user clears only until then", async () => {
  const note = { role: "system", content: "9 tokens are left.", clear_at: "next_user_message" };
  const answer = { role: "assistant", content: "Rain." };
  const current = await promptOf({ messages: [user, note] });
  expect(current.messages).toEqual([{ role: "user", content: "Weather?\n\n9 tokens are left." }]);
  const later = await promptOf({ messages: [user, note, answer, { role: "user", content: "Sure?" }] });
  expect(later.messages.map(({ content }) => content)).toEqual(["Weather?", "Rain.", "Sure?"]);
  const kept = await promptOf({ messages: [user, { ...note, clear_at: "never" }, answer, user] });
  expect(JSON.stringify(kept.messages)).toContain("tokens are left");
});

describe("a request is rejected whose", () => {
  test.for<[problem: string, fields: object, message: RegExp]>([
    [
      "choice is a tool that is not loaded",
      { tools: [search, deferred], messages: [user], tool_choice: { type: "tool", name: "deferred" } },
      /^tool_choice names a tool that is not loaded: deferred/,
    ],
    [
      "choice requires a call while no tool is loaded",
      { tools: [deferred], messages: [user], tool_choice: { type: "any" } },
      /^tool_choice can only require a call when tools has a function/,
    ],
    [
      "messages load too many tools",
      {
        messages: [
          user,
          changes(...Array.from({ length: 257 }, (_, index) => define({ ...weather, name: `a${index}` }))),
        ],
      },
      /^messages can load at most 256 tools, not 257/,
    ],
    [
      "change of tools is in a message of the user",
      { messages: [{ role: "user", content: [add("search")] }] },
      /^messages\[0\]\.content\[0\]\.type cannot be tool_addition in a message of the user/,
    ],
    [
      "change of tools has another form",
      { messages: [changes({ type: "tool_removal", tool: { type: "tool_definition" } })] },
      /^messages\[0\]\.content\[0\]\.tool\.type must be a supported type/,
    ],
  ])("%s", async ([, fields, message]) => {
    const { post } = createTestApp();
    const response = await post(path, { max_tokens: 9, ...fields });
    const { error } = (await response.json()) as { readonly error: { readonly message: string } };
    expect(error.message).toMatch(message);
    expect(response.status).toBe(400);
  });
});

test("an error in a definition that a message gives has its path in the body", async () => {
  const refusal = new EngineError("invalid_argument", "tools[1].function.parameters has no end.", {
    parameter: "samplingParams.structuredOutput",
  });
  const { post } = createTestApp({ script: [refusal] });
  const messages = [user, changes(define(weather))];
  const response = await post(path, { max_tokens: 9, tools: [search], messages, tool_choice: { type: "any" } });
  const { error } = (await response.json()) as { readonly error: { readonly message: string } };
  expect(error.message).toContain("messages[1].content[0].tool.definition.input_schema has no end.");
});
