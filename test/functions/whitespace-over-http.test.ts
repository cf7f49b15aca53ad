/** A model that always prefers white space still ends its JSON: in structured output, and in required calls. */
import { readFile } from "node:fs/promises";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { startService } from "../support/service/running-service.ts";
import type { RunningService } from "../support/service/running-service.ts";

const schema = {
  type: "object",
  properties: {
    shape: { enum: ["circle", "square"] },
    counts: { type: "array", items: { enum: [1, 2] }, minItems: 2, maxItems: 2 },
  },
  required: ["shape", "counts"],
  additionalProperties: false,
};
let service: RunningService;
let client: OpenAI;
let body: OpenAI.ChatCompletionCreateParamsNonStreaming;

beforeAll(async () => {
  service = await startService();
  client = new OpenAI({ baseURL: `${service.baseUrl}/v1`, apiKey: "none", maxRetries: 0 });
  const file = await readFile(new URL("../../models/fovea-shapes/tokenizer.json", import.meta.url), "utf8");
  const { model } = JSON.parse(file) as { readonly model: { readonly vocab: Readonly<Record<string, number>> } };
  // In the byte-level spelling: tokens of nothing but spaces, line feeds and tabs.
  const blanks = Object.entries(model.vocab).filter(([token]) => /^[ĠĊĉ]+$/.test(token));
  body = {
    model: "fovea-shapes",
    messages: [{ role: "user", content: "How many circles?" }],
    temperature: 0,
    max_tokens: 400,
    logit_bias: Object.fromEntries(blanks.map(([, id]) => [String(id), 100])),
  };
});

afterAll(() => service[Symbol.asyncDispose]());

function expectValid(text: string, hasBlanks = true): void {
  expect(JSON.parse(text)).toEqual({
    shape: expect.stringMatching(/^(circle|square)$/),
    counts: [expect.any(Number), expect.any(Number)],
  });
  expect(/\s{20}/.test(text)).toBe(hasBlanks);
}

describe("a model that prefers white space", () => {
  test("ends its JSON", async () => {
    const format = { type: "json_schema" as const, json_schema: { name: "answer", schema } };
    const { choices } = await client.chat.completions.create({ ...body, response_format: format });
    expect(choices[0]!.finish_reason).toBe("stop");
    expectValid(choices[0]!.message.content!);
  });

  test("ends its calls", async () => {
    const { choices } = await client.chat.completions.create({
      ...body,
      tools: [{ type: "function", function: { name: "answer", parameters: schema } }],
      tool_choice: "required",
      parallel_tool_calls: false,
    });
    expect(choices[0]!.finish_reason).toBe("tool_calls");
    const [call] = choices[0]!.message.tool_calls!;
    expectValid(call?.type === "function" ? call.function.arguments : "");
  });

  test("writes only a space after a comma or colon with disable_any_whitespace", async () => {
    const compact = { structured_outputs: { json: schema, disable_any_whitespace: true } };
    const { choices } = await client.chat.completions.create({ ...body, ...compact });
    expect(choices[0]!.finish_reason).toBe("stop");
    const text = choices[0]!.message.content!;
    expectValid(text, false);
    expect(text).toMatch(/^\{"shape": "(circle|square)", "counts": \[\d, \d\]\}$/);
  });

  test("rejects disable_any_whitespace without JSON", async () => {
    const wrong = { structured_outputs: { regex: "a", disable_any_whitespace: true } };
    await expect(client.chat.completions.create({ ...body, ...wrong })).rejects.toMatchObject({
      status: 400,
      param: "structured_outputs.disable_any_whitespace",
    });
  });
});
