/** Bad requests to `/v1/responses`: each error names the field's path and what to do. */
import { expect, test } from "vitest";

import { EngineError } from "../../../engine/index.ts";
import { pythonicFormat } from "../../../functions/generation/parsed-output/formats/pythonic.ts";
import { createTestApp } from "../../support/service/test-app.ts";
import { picture, weather } from "./response-parts.ts";

const path = "/v1/responses";

const user = (content: unknown) => ({ input: [{ role: "user", content }] });
const tools = (...given: unknown[]) => ({ input: "a", tools: given });

/** Body, path of the invalid field, and message. */
const badBodies: [object, string | null, RegExp][] = [
  [{}, "input", /must be a string or a list of items/],
  [{ input: 5 }, "input", /must be a string or a list of items/],
  [{ input: [] }, "input", /must contain at least one item/],
  [{ input: ["a"] }, "input[0]", /must be an object/],
  [{ input: [{}] }, "input[0].type", /must be a supported item type: message, function_call/],
  [{ input: [{ type: "web_search_call" }] }, "input[0].type", /got "web_search_call"/],
  [{ input: [{ type: "item_reference", id: "msg_1" }] }, "input[0].type", /stores no items.* store: false/],
  [{ input: [{ role: "tool", content: "a" }] }, "input[0].role", /one of user, assistant, system, developer/],
  [user(5), "input[0].content", /must be a string or a list of parts/],
  [user([{ type: "input_text" }]), "input[0].content[0].text", /must be a string/],
  [user([{ type: "input_file" }]), "input[0].content[0].file_data", /must be a string: a PDF file in base64/],
  [user([{ type: "input_image" }]), "input[0].content[0].image_url", /null is allowed only with a file_id or a uuid/],
  [user([{ type: "input_image", image_url: { url: "a" } }]), "input[0].content[0].image_url", /must be a string/],
  [{ input: [{ type: "function_call", name: "a", arguments: "{}" }] }, "input[0].call_id", /must be a string/],
  [
    { input: [{ type: "function_call", call_id: "1", name: "", arguments: "{}" }] },
    "input[0].name",
    /must not be empty/,
  ],
  [
    { input: [{ type: "function_call", call_id: "1", name: "a", arguments: "[1]" }] },
    "input[0].arguments",
    /must be a string with a JSON object/,
  ],
  [{ input: [{ type: "function_call_output", call_id: "1" }] }, "input[0].output", /must be a string or a list/],
  [{ input: [{ type: "reasoning", summary: "a" }] }, "input[0].summary", /must be a list of texts/],
  [{ input: "a", instructions: 5 }, "instructions", /must be a string/],
  [{ input: "a", model: "other" }, "model", /does not exist/],
  [{ input: "a", max_output_tokens: "5" }, "max_output_tokens", /must be a number/],
  [{ input: "a", max_output_tokens: 0 }, "max_output_tokens", /max_output_tokens must be at least 1/],
  [{ input: "a", temperature: "hot" }, "temperature", /must be a number/],
  [{ input: "a", temperature: -1 }, "temperature", /temperature/],
  [{ input: "a", top_p: 2 }, "top_p", /top_p/],
  [{ input: "a", top_logprobs: 21 }, "top_logprobs", /greater than max allowed: 20/],
  [{ input: "a", stream: "yes" }, "stream", /must be true or false/],
  [{ input: "a", store: 1 }, "store", /must be true or false/],
  [{ input: "a", truncation: "some" }, "truncation", /must be auto or disabled/],
  [{ input: "a", metadata: { a: 5 } }, "metadata.a", /must be a string/],
  [{ input: "a", metadata: { a: "x".repeat(513) } }, "metadata.a", /at most 512 characters, not 513/],
  [{ input: "a", include: "all" }, "include", /must be a list of names/],
  [{ input: "a", reasoning: { effort: "much" } }, "reasoning.effort", /must be none, minimal/],
  [{ input: "a", text: { format: { type: "yaml" } } }, "text.format.type", /must be text, json_object or json_schema/],
  [{ input: "a", text: { format: { type: "json_schema", name: "a" } } }, "text.format.schema", /must be a JSON Schema/],
  [
    { input: "a", text: { format: { type: "json_object" } }, structured_outputs: { regex: "a" } },
    "structured_outputs",
    /cannot be combined with text.format/,
  ],
  [tools(5), "tools[0]", /must be an object/],
  [tools({ type: "function" }), "tools[0].name", /must be/],
  [tools({ ...weather, name: "a b" }), "tools[0].name", /letters, digits/],
  [tools({ ...weather, parameters: { type: "array" } }), "tools[0].parameters.type", /must be object/],
  [tools(weather, weather), "tools[1].name", /is the name of two tools: get_weather/],
  [
    tools(...Array.from({ length: 300 }, (_, index) => ({ ...weather, name: `t${index}` }))),
    "tools",
    /at most 256 entries, not 300/,
  ],
  [
    tools(
      ...["a", "b"].map((name) => ({
        type: "namespace",
        name,
        tools: Array.from({ length: 200 }, (_, index) => ({ ...weather, name: `t${index}` })),
      })),
    ),
    "tools",
    /can hold at most 256 functions, not 400/,
  ],
  [
    tools({ type: "namespace", name: "a", tools: [{ ...weather, parameters: { type: "array" } }] }),
    "tools[0].tools[0].parameters.type",
    /must be object/,
  ],
  [{ ...tools(weather), tool_choice: "some" }, "tool_choice", /must be auto, none, required/],
  [{ ...tools(weather), tool_choice: { type: "web_search" } }, "tool_choice.type", /must be auto, none, required/],
  [
    { ...tools(weather), tool_choice: { type: "function", name: "other" } },
    "tool_choice",
    /names a tool that tools does not have: other/,
  ],
  [
    {
      ...tools(weather),
      tool_choice: { type: "allowed_tools", mode: "required", tools: [{ type: "function", name: "other" }] },
    },
    "tool_choice",
    /names a tool that tools does not have: other/,
  ],
  [
    { ...tools(weather), tool_choice: { type: "allowed_tools", mode: "required", tools: [{ type: "web_search" }] } },
    "tool_choice",
    /when tools has a function/,
  ],
  [
    { ...tools(weather), tool_choice: { type: "allowed_tools", mode: "auto", tools: [{ type: "function" }] } },
    "tool_choice.tools[0].name",
    /must be/,
  ],
  [{ input: "a", tool_choice: "required" }, "tool_choice", /when tools has a function/],
  [{ ...tools({ type: "web_search" }), tool_choice: "required" }, "tool_choice", /when tools has a function/],
  [
    { ...tools(weather), tool_choice: "required", structured_outputs: { regex: "a" } },
    "structured_outputs",
    /cannot be combined with a tool_choice/,
  ],
  [{ input: "a", return_token_ids: true }, "return_token_ids", /not supported.*; chat and text completions have it/],
  [{ input: "a", return_tokens_as_token_ids: true }, "return_tokens_as_token_ids", /not supported/],
  [{ input: "a", previous_response_id: "resp_1" }, "previous_response_id", /stores no answers/],
  [{ input: "a", conversation: "conv_1" }, "conversation", /stores no answers/],
  [{ input: "a", background: true }, "background", /\/v1\/batches/],
  [{ input: "a", prompt: { id: "pmpt_1" } }, "prompt", /no prompt templates/],
];

test.for(badBodies.map(([body, param, message], index) => ({ index, body, param, message })))(
  "an invalid value of $param is rejected with its path ($index)",
  async ({ body, param, message }) => {
    const { post, engine } = createTestApp();
    const response = await post(path, body);
    const { error } = (await response.json()) as { error: { message: string; param: string | null } };
    expect([error.param, error.message]).toEqual([param, expect.stringMatching(message)]);
    expect(response.status).toBe(param === "model" ? 404 : 400);
    expect(engine.requests).toHaveLength(0);
  },
);

test("an error of a tool names its place in the body, with the tools that are left out", async () => {
  const { post } = createTestApp({ config: { outputFormats: { toolCalls: pythonicFormat, reasoning: null } } });
  const response = await post(path, { input: "a", tools: [{ type: "web_search" }, weather] });
  expect(await response.json()).toMatchObject({
    error: { param: "tools[1].strict", message: expect.stringMatching(/^tools\[1\]\.strict cannot be enforced/) },
  });
  const grouped = await post(path, { input: "a", tools: [{ type: "namespace", name: "a", tools: [weather] }] });
  expect(await grouped.json()).toMatchObject({ error: { param: "tools[0].tools[0].strict" } });
});

test("an error of a picture names its place in the body", async () => {
  const { post } = createTestApp({
    script: [new EngineError("invalid_image", "The image is broken.", { parameter: "prompt.images[1]" })],
  });
  const response = await post(path, {
    input: [
      { role: "user", content: [{ type: "input_image", image_url: picture }] },
      { type: "function_call", call_id: "1", name: "look", arguments: "{}" },
      {
        type: "function_call_output",
        call_id: "1",
        output: [
          { type: "input_text", text: "a" },
          { type: "input_image", image_url: picture },
        ],
      },
    ],
  });
  expect(await response.json()).toMatchObject({ error: { param: "input[2].output[1].image_url" } });
});
