/** However a text is divided into tokens, the same calls, thinking and text come out. */
import * as fc from "fast-check";
import { expect, test } from "vitest";

import { reasoningFormats, toolCallFormats } from "../../../../functions/generation/parsed-output/model-formats.ts";
import { parseAll, parsingOf } from "./parsed.ts";

/** Pieces of all formats, whole, begun and broken. */
const fragments = [
  "<tool_call>",
  "</tool_call>",
  "<tool_",
  "\n",
  "  ",
  '{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}',
  '{"arguments": {"a": [1, -0.5e3, true, null, "\\u00e9\\n"]}, "name": "stop-it"}',
  '{"name": "get_weather", "parameters": {"options": {"a": {"b": []}}}}',
  '{"name": "get_weather", "arguments": "{\\"city\\": 1}"}',
  '{"name": "stop-it"',
  '{"name": "get_weather", "arguments": {"city": "a\nb',
  "<function=get_weather>",
  "<parameter=city>",
  "\nPa</ris\n",
  "</parameter>",
  "<parameter=days>2</parameter>",
  "</function>",
  "<arg_key>city</arg_key>",
  "<arg_key>days</arg_key>\n<arg_value>2",
  "<arg_value>",
  "</arg_value>",
  "[TOOL_CALLS]",
  "[ARGS]",
  "[CALL_ID]abc",
  "get_weather",
  "stop-it{}",
  "[",
  "]",
  ",",
  ";",
  "}",
  "<|python_tag|>",
  "[get_weather(city='a\\'b', days=1), ",
  "stop-it()]",
  "<|python_end|>",
  "<|tool_call>call:get_weather{city:",
  "<|tool_call>call:stop-it(",
  '<|"|>',
  "days:2, note=",
  "<tool_call|>",
  "<|tool_call_start|>",
  "<|tool_call_end|>",
  "<think>",
  "</think>",
  "</thi",
  "<answer>",
  "\n</answer>",
  "</answ",
  "<tool_calls>",
  "助手：<tool_calls>",
  "</tool_calls>",
  "[THINK]",
  "[/THINK]",
  "Hello, wörld 😀.",
  "<",
  "🙂",
];

const texts = fc
  .array(fc.oneof({ weight: 8, arbitrary: fc.constantFrom(...fragments) }, { weight: 1, arbitrary: fc.string() }), {
    maxLength: 14,
  })
  .map((pieces) => pieces.join(""));

/** Cuts between characters, as the detokenizer does. */
function cut(text: string, lengths: readonly number[]): string[] {
  const characters = Array.from(text);
  const pieces: string[] = [];
  for (let index = 0, turn = 0; index < characters.length; turn += 1) {
    const length = lengths[turn % lengths.length]!;
    pieces.push(characters.slice(index, index + length).join(""));
    index += length;
  }
  return pieces;
}

const splits = fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 6 });

for (const format of toolCallFormats) {
  test(`${format.name}: any split gives the calls and the text of the whole`, () => {
    fc.assert(
      fc.property(texts, splits, (text, lengths) => {
        const parsing = parsingOf(format);
        expect(parseAll(parsing, cut(text, lengths))).toEqual(parseAll(parsing, [text]));
      }),
      { numRuns: 1000 },
    );
  });
}

for (const reasoning of reasoningFormats) {
  test(`${reasoning.name}: any split gives the thinking of the whole, before calls`, () => {
    const starts = fc.constantFrom("before", "inside", "continued", "after");
    fc.assert(
      fc.property(texts, splits, starts, fc.constantFrom(...toolCallFormats), (text, lengths, start, format) => {
        const parsing = parsingOf(format, { reasoning });
        const marked = text.replaceAll("<think>", reasoning.start).replaceAll("</think>", reasoning.end);
        expect(parseAll(parsing, cut(marked, lengths), start)).toEqual(parseAll(parsing, [marked], start));
      }),
      { numRuns: 1000 },
    );
  });
}

const jsonObjects = fc
  .dictionary(fc.string({ maxLength: 8 }), fc.jsonValue({ maxDepth: 4 }), { maxKeys: 5 })
  .map((value) => JSON.stringify(value));
const prose = fc.stringMatching(/^[a-zA-Z0-9 .,!?]{0,30}$/);

/** How a model writes a call, by the format. */
const writers: readonly (readonly [string, (name: string, json: string) => string])[] = [
  ["hermes", (name, json) => `<tool_call>\n{"name": "${name}", "arguments": ${json}}\n</tool_call>\n`],
  ["qwen3_coder", (name, json) => `<tool_call>{"name": "${name}", "arguments": ${json}}</tool_call>`],
  ["glm45", (name, json) => `<tool_call>{"name": "${name}", "arguments": ${json}}</tool_call>`],
  ["hunyuan_a13b", (name, json) => `<tool_calls>[{"name": "${name}", "arguments": ${json}}]</tool_calls>`],
  ["mistral", (name, json) => `[TOOL_CALLS][{"name": "${name}", "arguments": ${json}}]`],
  ["mistral_v11", (name, json) => `[TOOL_CALLS]${name}[ARGS]${json}`],
];

test.for(writers)("%s: every call that a model writes comes out as it was written", ([name, write]) => {
  const format = toolCallFormats.find((one) => one.name === name)!;
  const calls = fc.array(fc.tuple(fc.constantFrom("get_weather", "stop-it"), jsonObjects), {
    minLength: 1,
    maxLength: 4,
  });
  fc.assert(
    fc.property(prose, calls, splits, (text, written, lengths) => {
      const whole = text + written.map(([tool, json]) => write(tool, json)).join("");
      const parsed = parseAll(parsingOf(format), cut(whole, lengths));
      expect(parsed).toEqual({ content: text.trimEnd(), reasoning: "", calls: written });
    }),
    { numRuns: 1000 },
  );
});
