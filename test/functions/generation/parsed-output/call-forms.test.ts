/** Random walks through the grammars of calls give calls whose arguments match the schemas of their tools. */
import { Ajv2020 } from "ajv/dist/2020.js";
import * as fc from "fast-check";
import { expect, test } from "vitest";

import type { ToolDefinition } from "../../../../engine/index.ts";
import { toolCallFormats } from "../../../../functions/generation/parsed-output/model-formats.ts";
import { planTools, UnenforceableTool } from "../../../../functions/generation/parsed-output/tool-plan.ts";
import type { ToolRequest } from "../../../../functions/generation/parsed-output/tool-plan.ts";
import { compileOnce, Reader, shapesVocabulary, walk } from "../../../engine/structured-output/grammars.ts";
import { parseAll } from "./parsed.ts";

const ajv = new Ajv2020({ strict: false });

const { schema: schemas } = fc.letrec<{ schema: Record<string, unknown>; object: Record<string, unknown> }>((tie) => ({
  schema: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    fc.constantFrom(
      { type: "string", maxLength: 5 },
      { type: "integer", minimum: -3, maximum: 120 },
      { type: "number", minimum: 0, maximum: 1 },
      { type: "boolean" },
      { type: "null" },
      { enum: ["red", "green", 3, null] },
      { type: "string", pattern: "^[a-c]{1,3}$" },
    ),
    tie("object"),
    tie("schema").map((items) => ({ type: "array", items, maxItems: 2 })),
    fc.tuple(tie("schema"), tie("schema")).map((anyOf) => ({ anyOf })),
  ),
  object: fc
    .tuple(
      fc.dictionary(fc.stringMatching(/^[a-z_]{1,6}$/), tie("schema"), { maxKeys: 3 }),
      fc.infiniteStream(fc.boolean()),
    )
    .map(([properties, coin]) => ({
      type: "object",
      properties,
      required: Object.keys(properties).filter(() => coin.next().value),
      additionalProperties: false,
    })),
}));
const parameters = fc.dictionary(fc.stringMatching(/^[a-z_]{1,6}$/), schemas, { maxKeys: 3 }).map((properties) => ({
  type: "object",
  properties,
  required: Object.keys(properties),
  additionalProperties: false,
}));
const toolLists = fc.array(fc.option(parameters), { minLength: 1, maxLength: 3 }).map((list) =>
  list.map((schema, index): ToolDefinition => {
    return { name: `tool-${index}`, description: null, parameters: schema, strict: false };
  }),
);

const requestOf = (tools: readonly ToolDefinition[], fields: Partial<ToolRequest>): ToolRequest => ({
  tools,
  choice: "required",
  isParallel: false,
  answerForm: null,
  schemaField: ({ name }) => name,
  ...fields,
});

function expectValid(tools: readonly ToolDefinition[], name: string, json: string): void {
  const tool = tools.find((one) => one.name === name);
  const schema = tool?.parameters ?? { type: "object", maxProperties: 0 };
  expect([name, json, ajv.validate(schema, JSON.parse(json))]).toEqual([name, json, true]);
}

for (const format of toolCallFormats) {
  test(`${format.name}: required calls match random schemas`, { timeout: 120_000 }, async () => {
    let numCalls = 0;
    await fc.assert(
      fc.asyncProperty(toolLists, fc.boolean(), async (tools, isNamed) => {
        const choice = isNamed ? { named: tools[0]!.name } : "required";
        const { structuredOutput, parsing } = planTools(requestOf(tools, { choice }), format)!;
        const grammar = await compileOnce(shapesVocabulary, structuredOutput!);
        for (const bytes of walk(grammar, shapesVocabulary, 3)) {
          const { content, calls } = parseAll({ toolCalls: parsing, reasoning: null, includesReasoning: true }, [
            Buffer.from(bytes).toString(),
          ]);
          expect(content).toBe("");
          expect(calls).toHaveLength(1);
          for (const [name, json] of calls) expectValid(tools, name, json);
          const callable = isNamed ? [tools[0]!.name] : tools.map(({ name }) => name);
          expect(callable).toContain(calls[0]![0]);
          numCalls += 1;
        }
      }),
      { numRuns: 10 },
    );
    expect(numCalls).toBeGreaterThan(0);
  });
}

const strictTools: readonly ToolDefinition[] = [
  {
    name: "f",
    description: null,
    strict: true,
    parameters: {
      type: "object",
      properties: { a: { type: "boolean" } },
      required: ["a"],
      additionalProperties: false,
    },
  },
  {
    name: "g",
    description: null,
    strict: false,
    parameters: { type: "object", properties: { a: { type: "boolean" } } },
  },
];

const samples: Readonly<Record<string, { readonly good: readonly string[]; readonly bad: readonly string[] }>> = {
  hermes: {
    good: [
      "",
      "Just text <tool",
      'Hm.\n<tool_call>\n{"name": "f", "arguments": {"a":true}}\n</tool_call>',
      '<tool_call>\n{"name": "g", "arguments": {"a": 5, "b": []}}\n</tool_call>\n<tool_call>\n{"name": "f", "arguments": {"a":false}}\n</tool_call> Done.',
    ],
    bad: [
      '<tool_call>\n{"name": "f", "arguments": {"a":5}}\n</tool_call>',
      "<tool_call>oh",
      '<tool_call>\n{"name": "h"',
    ],
  },
  mistral: {
    good: ["Hi", 'Hm.[TOOL_CALLS][{"name": "f", "arguments": {"a":true}}]'],
    bad: ['[TOOL_CALLS][{"name": "f", "arguments": {}}]', "[TOOL_CALLS]x"],
  },
  hunyuan_a13b: {
    good: ["Hi", 'Hm.<tool_calls>[{"name": "f", "arguments": {"a":true}}]</tool_calls>'],
    bad: ['<tool_calls>[{"name": "f", "arguments": {}}]</tool_calls>', "<tool_calls>x"],
  },
  mistral_v11: {
    good: ["Hi", 'Hm.[TOOL_CALLS]f[ARGS]{"a":true}[TOOL_CALLS]g[ARGS]{}'],
    bad: ["[TOOL_CALLS]f[ARGS]{}", "[TOOL_CALLS]x"],
  },
  gemma4: {
    good: ["Hi", 'Hm.<|tool_call>call:f{"a":true}<tool_call|><|tool_call>call:g{}<tool_call|>'],
    bad: ["<|tool_call>call:f{}<tool_call|>", "<|tool_call>x"],
  },
  lfm2: {
    good: [
      "Hi",
      'Hm.<|tool_call_start|>[{"name": "f", "arguments": {"a":true}}]<|tool_call_end|>' +
        '<|tool_call_start|>[{"name": "g", "arguments": {}}]<|tool_call_end|>',
    ],
    bad: [
      '<|tool_call_start|>[{"name": "f", "arguments": {}}]<|tool_call_end|>',
      "<|tool_call_start|>[f(a=True)]<|tool_call_end|>",
    ],
  },
  llama3_json: {
    good: ["", "Hi {", '{"name": "f", "parameters": {"a":true}}; {"name": "g", "parameters": {}}'],
    bad: ['{"name": "f", "parameters": {}}', "{}"],
  },
};

test.for(Object.entries(samples))(
  "%s: a strict tool constrains its calls and leaves text free",
  ([name, { good, bad }]) => {
    const format = toolCallFormats.find((one) => one.name === name)!;
    const plan = planTools(requestOf(strictTools, { choice: "auto", isParallel: true }), format)!;
    const reader = new Reader(plan.structuredOutput!);
    for (const text of good) expect([text, reader.judge(Buffer.from(text))]).toEqual([text, "whole"]);
    for (const text of bad) expect([text, reader.judge(Buffer.from(text))]).toEqual([text, "none"]);
  },
);

test("a format without a grammar refuses strict tools, and writes required calls like Hermes", () => {
  const format = toolCallFormats.find(({ name }) => name === "pythonic")!;
  expect(() => planTools(requestOf(strictTools, { choice: "auto" }), format)).toThrow(UnenforceableTool);
  expect(planTools(requestOf(strictTools, {}), format)!.parsing.format.name).toBe("hermes");
});

test("tools that are not strict leave the output free, and with a form of the answer it is that or a call", () => {
  const format = toolCallFormats[0]!;
  const tools = strictTools.slice(1);
  expect(planTools(requestOf(tools, { choice: "auto" }), format)!.structuredOutput).toBeNull();
  expect(planTools(requestOf(tools, { choice: "none" }), format)).toBeNull();
  expect(planTools(requestOf([], { choice: "auto" }), format)).toBeNull();
  const answerForm = { kind: "choice", choices: ["yes", "no"] } as const;
  const reader = new Reader(planTools(requestOf(tools, { choice: "auto", answerForm }), format)!.structuredOutput!);
  expect(reader.judge(Buffer.from("yes"))).toBe("whole");
  expect(reader.judge(Buffer.from('<tool_call>\n{"name": "g", "arguments": {"a":true}}\n</tool_call>'))).toBe("whole");
  expect(reader.judge(Buffer.from("maybe"))).toBe("none");
});
