import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

import {
  chooseReasoningFormat,
  chooseToolCallFormat,
  toolCallFormats,
} from "../../../../functions/generation/parsed-output/model-formats.ts";
import { parseAll, parseDeltas, parsingOf } from "./parsed.ts";

const formatNamed = (name: string) => toolCallFormats.find((format) => format.name === name)!;
const paris = '{"city": "Paris", "days": 2}';
const call = (json = paris): readonly [string, string] => ["get_weather", json];

/** JSON that JSON.stringify cannot write again. */
const deepObject = `{"a":${"[".repeat(50_000)}${"]".repeat(50_000)}}`;

type Case = readonly [
  format: string,
  title: string,
  text: string,
  content: string,
  calls: readonly (readonly [string, string])[],
];

test.for<Case>([
  ["hermes", "a call", `<tool_call>\n{"name": "get_weather", "arguments": ${paris}}\n</tool_call>`, "", [call()]],
  [
    "hermes",
    "text before calls, without the white space between",
    `Let me see.\n\n<tool_call>{"name":"get_weather","arguments":${paris}}</tool_call>\n<tool_call>\n{"name": "stop-it"}\n</tool_call>\n`,
    "Let me see.",
    [call(), ["stop-it", "{}"]],
  ],
  [
    "hermes",
    "arguments before the name",
    `<tool_call>{"arguments": ${paris}, "name": "get_weather"}</tool_call>`,
    "",
    [call()],
  ],
  [
    "hermes",
    "arguments as a string",
    `<tool_call>{"name": "get_weather", "arguments": ${JSON.stringify(paris)}}</tool_call>`,
    "",
    [call()],
  ],
  [
    "hermes",
    "a raw line break in a string, escaped",
    '<tool_call>{"name": "get_weather", "arguments": {"city": "a\nb"}}</tool_call>',
    "",
    [call('{"city": "a\\nb"}')],
  ],
  ["hermes", "no end tag", `<tool_call>{"name": "get_weather", "arguments": ${paris}}`, "", [call()]],
  [
    "hermes",
    "a call cut off in its arguments",
    '<tool_call>{"name": "get_weather", "arguments": {"city": "Par',
    "",
    [call('{"city": "Par')],
  ],
  [
    "hermes",
    "a call cut off before its arguments as text",
    'a <tool_call>{"name": "get_',
    'a <tool_call>{"name": "get_',
    [],
  ],
  ["hermes", "a broken call as text", "<tool_call>{name: x}</tool_call>", "<tool_call>{name: x}</tool_call>", []],
  [
    "hermes",
    "a call after a broken one",
    `<tool_call>oh <tool_call>{"name": "get_weather", "arguments": ${paris}}</tool_call>`,
    "<tool_call>oh",
    [call()],
  ],
  [
    "hermes",
    "one brace too many as text",
    `<tool_call>{"name": "get_weather", "arguments": ${paris}}}</tool_call>`,
    "}",
    [call()],
  ],
  ["hermes", "text that only begins like a tag", "1 <tool_cat 2 <", "1 <tool_cat 2 <", []],
  ["hermes", "text with white space at its end", "Done. \n", "Done. \n", []],
  [
    "qwen3_coder",
    "a call with values of the schema's types",
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n2\n</parameter>\n" +
      '<parameter=exact>\nTrue\n</parameter>\n<parameter=options>\n{"a": [1]}\n</parameter>\n' +
      "<parameter=note>\nnull\n</parameter>\n</function>\n</tool_call>",
    "",
    [call('{"city": "Paris", "days": 2, "exact": true, "options": {"a": [1]}, "note": null}')],
  ],
  [
    "qwen3_coder",
    "numbers with all their digits",
    "<tool_call><function=get_weather><parameter=days>175928847299117063</parameter>" +
      '<parameter=options>{"id": 12345678901234567890, "price": 10.0}</parameter></function></tool_call>',
    "",
    [call('{"days": 175928847299117063, "options": {"id": 12345678901234567890, "price": 10.0}}')],
  ],
  [
    "qwen3_coder",
    "a text of several lines with quotes and tags",
    '<tool_call><function=get_weather><parameter=city>\n"a"\n</b>\n\n</parameter></function></tool_call>',
    "",
    [call(JSON.stringify({ city: '"a"\n</b>\n' }).replace(":", ": "))],
  ],
  [
    "qwen3_coder",
    "a value of the wrong type as a string",
    "<tool_call><function=get_weather><parameter=days>two</parameter></function></tool_call>",
    "",
    [call('{"days": "two"}')],
  ],
  [
    "qwen3_coder",
    "a value that is nested too deeply as a string",
    `<tool_call><function=get_weather><parameter=options>${deepObject}</parameter></function></tool_call>`,
    "",
    [call(`{"options": ${JSON.stringify(deepObject)}}`)],
  ],
  [
    "qwen3_coder",
    "a call without parameters",
    "<tool_call>\n<function=stop-it>\n</function>\n</tool_call>",
    "",
    [["stop-it", "{}"]],
  ],
  [
    "qwen3_coder",
    "a call cut off in a value",
    "<tool_call><function=get_weather><parameter=city>Par",
    "",
    [call('{"city": "Par')],
  ],
  [
    "qwen3_coder",
    "JSON between the tags",
    `<tool_call>{"name": "get_weather", "arguments": ${paris}}</tool_call>`,
    "",
    [call()],
  ],
  [
    "qwen3_coder",
    "an object that its schema only refers to",
    '<tool_call><function=get_weather><parameter=place>{"x": 1}</parameter></function></tool_call>',
    "",
    [call('{"place": {"x": 1}}')],
  ],
  [
    "qwen3_coder",
    "calls without the first tag",
    "I look.\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>\n" +
      "<function=stop-it>\n</function>",
    "I look.",
    [call('{"city": "Paris"}'), ["stop-it", "{}"]],
  ],
  [
    "qwen3_coder",
    "functions without the first tag that are no tools as text",
    "Write <function=main> or <function=",
    "Write <function=main> or <function=",
    [],
  ],
  ["qwen3_coder", "a broken call as text", "<tool_call><function=", "<tool_call><function=", []],
  [
    "mistral",
    "a list of calls",
    `[TOOL_CALLS] [{"name": "get_weather", "arguments": ${paris}}, {"name": "stop-it", "arguments": {}}]`,
    "",
    [call(), ["stop-it", "{}"]],
  ],
  [
    "mistral",
    "named calls",
    `Sure.[TOOL_CALLS]get_weather[ARGS]${paris}[TOOL_CALLS]stop-it[CALL_ID]abc123def[ARGS]{}`,
    "Sure.",
    [call(), ["stop-it", "{}"]],
  ],
  ["mistral_v11", "a name right before its arguments", `[TOOL_CALLS]get_weather${paris}`, "", [call()]],
  ["mistral", "a broken list as text", "[TOOL_CALLS] [{]", "[TOOL_CALLS] [{]", []],
  ["llama3_json", "a call", `{"name": "get_weather", "parameters": ${paris}}`, "", [call()]],
  [
    "llama3_json",
    "a tag, and calls separated by semicolons",
    `<|python_tag|>{"name": "get_weather", "parameters": ${paris}}; {"name": "stop-it", "parameters": {}}`,
    "",
    [call(), ["stop-it", "{}"]],
  ],
  [
    "llama3_json",
    "Llama 4's tags",
    '<|python_start|>{"name": "stop-it", "parameters": {}}<|python_end|>',
    "",
    [["stop-it", "{}"]],
  ],
  ["llama3_json", "other JSON as text", '{"name": "Ada", "born": 1815}', '{"name": "Ada", "born": 1815}', []],
  [
    "llama3_json",
    "a call of an unknown tool as text",
    '{"name": "fly", "parameters": {}}',
    '{"name": "fly", "parameters": {}}',
    [],
  ],
  [
    "llama3_json",
    "a call within text as text",
    `So: {"name": "stop-it", "parameters": {}}`,
    `So: {"name": "stop-it", "parameters": {}}`,
    [],
  ],
  [
    "pythonic",
    "calls with literals of Python",
    `[get_weather(city='Pa"ris', days=-2, exact=True, options={"a": [1, 2.5, None], 'b': ("x",)}), stop-it()]`,
    "",
    [
      call('{"city": "Pa\\"ris", "days": -2, "exact": true, "options": {"a": [1, 2.5, null], "b": ["x"]}}'),
      ["stop-it", "{}"],
    ],
  ],
  ["gemma4", "a call", '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:2}<tool_call|>', "", [call()]],
  [
    "gemma4",
    "text, nested values and a second call",
    'Let me see.\n<|tool_call>call:get_weather{options:{a:[1,<|"|>x "y"<|"|>,true],b:{}},note:null}<tool_call|>' +
      "<|tool_call>call:stop-it{}<tool_call|>",
    "Let me see.",
    [call('{"options": {"a": [1, "x \\"y\\"", true], "b": {}}, "note": null}'), ["stop-it", "{}"]],
  ],
  [
    "gemma4",
    "strings of JSON and Python, equals signs and parentheses",
    `<|tool_call>call:get_weather(city='Pa"ris', options={"a": "\\u00e9"}, exact=True)<tool_call|>`,
    "",
    [call('{"city": "Pa\\"ris", "options": {"a": "\\u00e9"}, "exact": true}')],
  ],
  [
    "gemma4",
    "a bare text as a string",
    "<|tool_call>call:get_weather{city:New York}<tool_call|>",
    "",
    [call('{"city": "New York"}')],
  ],
  ["gemma4", "a call cut off in a string", '<|tool_call>call:get_weather{city:<|"|>Par', "", [call('{"city": "Par')]],
  ["gemma4", "a call cut off before its arguments as text", "a <|tool_call>call:get_", "a <|tool_call>call:get_", []],
  ["gemma4", "a broken call as text", "<|tool_call>oh", "<|tool_call>oh", []],
  [
    "lfm2",
    "text, and a list of calls with literals of Python",
    'I look.\n<|tool_call_start|>[get_weather(city="Paris", days=2), stop-it()]<|tool_call_end|>',
    "I look.",
    [call(), ["stop-it", "{}"]],
  ],
  [
    "lfm2",
    "text after a call, and a second list",
    "<|tool_call_start|>[stop-it()]<|tool_call_end|>Checking it.<|tool_call_start|>[get_weather(city='Paris', days=2)]<|tool_call_end|>",
    "Checking it.",
    [["stop-it", "{}"], call()],
  ],
  [
    "lfm2",
    "a list of JSON",
    `<|tool_call_start|>[{"name": "get_weather", "arguments": ${paris}}, {"name": "stop-it"}]<|tool_call_end|>`,
    "",
    [call(), ["stop-it", "{}"]],
  ],
  [
    "lfm2",
    "a broken call after a whole one as text",
    "<|tool_call_start|>[stop-it(), get_weather(city)]<|tool_call_end|>",
    ", get_weather(city)]<|tool_call_end|>",
    [["stop-it", "{}"]],
  ],
  ["lfm2", "a call cut off as text", "a <|tool_call_start|>[stop-it(b='", "a <|tool_call_start|>[stop-it(b='", []],
  ["lfm2", "a list of words as text", "<|tool_call_start|>[a, b]", "<|tool_call_start|>[a, b]", []],
  [
    "glm45",
    "a call with values of the schema's types",
    "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n" +
      '<arg_value>2</arg_value>\n<arg_key>options</arg_key>\n<arg_value>{"a": [1]}</arg_value>\n</tool_call>',
    "",
    [call('{"city": "Paris", "days": 2, "options": {"a": [1]}}')],
  ],
  [
    "glm45",
    "a number with all its digits",
    "<tool_call>get_weather<arg_key>days</arg_key><arg_value>-175928847299117063</arg_value></tool_call>",
    "",
    [call('{"days": -175928847299117063}')],
  ],
  [
    "glm45",
    "text, calls without line breaks, and a call without arguments",
    "Let me see.\n<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>\n" +
      "<tool_call>stop-it</tool_call>",
    "Let me see.",
    [call('{"city": "Paris"}'), ["stop-it", "{}"]],
  ],
  [
    "glm45",
    "a text of several lines with quotes and tags",
    '<tool_call>get_weather<arg_key>city</arg_key><arg_value>\n"a"\n</b>\n</arg_value></tool_call>',
    "",
    [call(JSON.stringify({ city: '\n"a"\n</b>\n' }).replace(":", ": "))],
  ],
  [
    "glm45",
    "JSON between the tags",
    `<tool_call>{"name": "get_weather", "arguments": ${paris}}</tool_call>`,
    "",
    [call()],
  ],
  [
    "glm45",
    "a call cut off in a value",
    "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Par",
    "",
    [call('{"city": "Par')],
  ],
  [
    "glm45",
    "a call without a value as incomplete",
    "<tool_call>stop-it<arg_key>now</arg_key></tool_call> Done.",
    "Done.",
    [["stop-it", "{"]],
  ],
  ["glm45", "a call cut off before its arguments as text", "a <tool_call>get_wea\n", "a <tool_call>get_wea\n", []],
  ["glm45", "a broken call as text", "<tool_call>oh dear > me", "<tool_call>oh dear > me", []],
  [
    "hunyuan_a13b",
    "several calls behind the name of the assistant",
    `Let me see.\n助手：<tool_calls>[\n{"name": "get_weather", "arguments": ${paris}},\n{"name": "stop-it", "arguments": {}}]\n</tool_calls>\n`,
    "Let me see.",
    [call(), ["stop-it", "{}"]],
  ],
  ["hunyuan_a13b", "no list as text", "<tool_calls>none</tool_calls>", "<tool_calls>none</tool_calls>", []],
  [
    "hunyuan_a13b",
    "a call cut off in its arguments",
    '<tool_calls>[{"name": "get_weather", "arguments": {"city": "Pa',
    "",
    [call('{"city": "Pa')],
  ],
  ["pythonic", "tags around", "<|python_start|>[stop-it()]<|python_end|>", "", [["stop-it", "{}"]]],
  ["pythonic", "a list of words as text", "[a, b]", "[a, b]", []],
  ["pythonic", "a reference as text", "[get_weather(city)] is called", "[get_weather(city)] is called", []],
  ["pythonic", "a call cut off as text", "[get_weather(city='Pa", "[get_weather(city='Pa", []],
])("%s: %s", ([name, , text, content, calls]) => {
  const parsing = parsingOf(formatNamed(name));
  expect(parseAll(parsing, [text])).toEqual({ content, reasoning: "", calls });
  expect(parseAll(parsing, Array.from(text))).toEqual({ content, reasoning: "", calls });
});

test("arguments are streamed while they arrive, and the id and name come once", () => {
  const pieces = ['<tool_call>{"name": "get_weather", "arguments": {"ci', 'ty": "Par', 'is"}}</tool_call>'];
  const [first, second, third, last] = parseDeltas(parsingOf(formatNamed("hermes")), pieces);
  expect(first!.toolCalls).toEqual([
    { index: 0, start: { id: expect.stringMatching(/^call_/), name: "get_weather" }, arguments: '{"ci' },
  ]);
  expect(second!.toolCalls).toEqual([{ index: 0, arguments: 'ty": "Par' }]);
  expect(third!.toolCalls).toEqual([{ index: 0, arguments: 'is"}' }]);
  expect(last).toEqual({});
});

test("the strings of XML are streamed too", () => {
  const pieces = [
    "<tool_call><function=get_weather><parameter=city>\nPa",
    'ri"s\n',
    "</parameter></function></tool_call>",
  ];
  const texts = parseDeltas(parsingOf(formatNamed("qwen3_coder")), pieces).map(({ toolCalls }) =>
    toolCalls?.map(({ arguments: piece }) => piece).join(""),
  );
  expect(texts).toEqual(['{"city": "Pa', 'ri\\"s', '"}', undefined]);
});

test("the strings of Gemma 4 are streamed too", () => {
  const pieces = ['<|tool_call>call:get_weather{city:<|"|>Pa', 'ri"s<|', '"|>}<tool_call|>'];
  const texts = parseDeltas(parsingOf(formatNamed("gemma4")), pieces).map(({ toolCalls }) =>
    toolCalls?.map(({ arguments: piece }) => piece).join(""),
  );
  expect(texts).toEqual(['{"city": "Pa', 'ri\\"s', '"}', undefined]);
});

test("calls after the last allowed one are left out", () => {
  const format = formatNamed("hermes");
  const text = '<tool_call>{"name": "stop-it", "arguments": {}}</tool_call>'.repeat(3);
  const parsing = parsingOf(format, { toolCalls: { format, tools: [], maxCalls: 1 } });
  expect(parseAll(parsing, [text]).calls).toEqual([["stop-it", "{}"]]);
});

test("Mistral's ids are those that its chat template accepts", () => {
  const [delta] = parseDeltas(parsingOf(formatNamed("mistral")), ["[TOOL_CALLS]stop-it[ARGS]{}"]);
  expect(delta!.toolCalls![0]!.start!.id).toMatch(/^[a-zA-Z0-9]{9}$/);
});

test.for([
  ['{{- \'<tool_call>\\n{"name": "\' }}', "hermes"],
  ["{{- '<tool_call>\\n<function=' + name + '>' }}", "qwen3_coder"],
  ["{{ '[TOOL_CALLS] [' }}", "mistral"],
  ["{{ '[TOOL_CALLS]' + name + '[ARGS]' }}", "mistral_v11"],
  ["{{- '{\"name\": \"' + name + '\", ' }}{{- '\"parameters\": ' }}", "llama3_json"],
  ["Use [func_name1(params_name1=params_value1)]", "pythonic"],
  ["{{- '<|tool_call>call:' + name + '{' }}", "gemma4"],
  ["{{- 'List of tools: <|tool_list_start|>[' }}", "lfm2"],
  ['{%- set ns.system_prompt = ns.system_prompt + "List of tools: [" -%}', "lfm2"],
  ["{{ '<tool_call>' + tc.name }}<arg_key>{{ k }}</arg_key>", "glm45"],
  ["{{ '<tool_calls>[' + calls | join(',') + ']</tool_calls>' }}", "hunyuan_a13b"],
  ["{{ message.content }}", "hermes"],
])("the template %s has the format %s", ([template, name]) => {
  expect(chooseToolCallFormat(template!).name).toBe(name);
});

test.for(["glm-4.5v", "glm-4.5", "glm-4.6v"])(
  "the template of %s shows calls of glm45 and thinking of qwen3",
  (name) => {
    const file = new URL(`../../../fixtures/hub/${name}/v4/chat_template.jinja`, import.meta.url);
    const template = readFileSync(file, "utf8");
    expect(chooseToolCallFormat(template).name).toBe("glm45");
    expect(chooseReasoningFormat(template)?.name).toBe("qwen3");
  },
);

test("Qwen 3 Coder: a strict tool, whose arguments are enforced after the tag, is not called without it", () => {
  const tool = { name: "get_weather", description: null, strict: true, parameters: null };
  const parsing = parsingOf(formatNamed("qwen3_coder"), {
    toolCalls: { format: formatNamed("qwen3_coder"), tools: [tool], maxCalls: null },
  });
  const text = "<function=get_weather></function>";
  expect(parseAll(parsing, [text])).toMatchObject({ content: text, calls: [] });
  expect(parseAll(parsing, [`<tool_call>${text}`])).toMatchObject({ content: "", calls: [["get_weather", "{}"]] });
});
