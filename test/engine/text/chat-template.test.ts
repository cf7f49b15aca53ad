import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";

import type { JsonObject } from "../../../engine/contract/tools.ts";
import { renderChat } from "../../../engine/input/chat-prompt.ts";
import { ChatTemplate, loadChatTemplate } from "../../../engine/text/chat-template.ts";
import type { TemplateMessage, TemplateTool } from "../../../engine/text/chat-template.ts";

const namedTokens = { bos_token: "<s>", eos_token: "</s>" };

const llava = `{% for message in messages %}{% if message['role'] != 'system' %}{{ message['role'].upper() + ': '}}{% endif %}
{# Render all images first #}
{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\\n' }}{% endfor %}
{% if message['role'] != 'assistant' %}
{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}{{ content['text'] + ' '}}{% endfor %}
{% else %}
{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}{% generation %}{{ content['text'] + ' '}}{% endgeneration %}{% endfor %}
{% endif %}
{% endfor %}
{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}`;

const mistral = `{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% else %}{{ message['content'] + eos_token }}{% endif %}{% endfor %}`;

test.for([
  ["LLaVA's loops over filtered content", llava, "parts"],
  ["Mistral's prints content", mistral, "string"],
  [
    "a loop over a variable",
    "{% for m in messages %}{% set c = m.content %}{% for p in c %}{{ p.text }}{% endfor %}{% endfor %}",
    "parts",
  ],
  [
    "a slice of the messages",
    "{% set rest = messages[1:] %}{% for m in rest %}{% for p in m['content'] %}x{% endfor %}{% endfor %}",
    "parts",
  ],
  ["one message by index", "{% for p in messages[0]['content'] %}{{ p }}{% endfor %}", "parts"],
  [
    "a macro",
    "{% macro show(c) %}{% for p in c %}x{% endfor %}{% endmacro %}{% for m in messages %}{{ show(m.content) }}{% endfor %}",
    "parts",
  ],
  [
    "a test of a macro's argument",
    "{% macro show(c) %}{% if c is not string %}{% for p in c %}x{% endfor %}{% endif %}{% endmacro %}{% for m in messages %}{{ show(m.content) }}{% endfor %}",
    "either",
  ],
  [
    "a test of something else",
    "{% for m in messages %}{% for p in m.content %}{{ p is string }}{{ m.name is string }}{% endfor %}{% endfor %}",
    "parts",
  ],
  [
    "a loop over something else",
    "{% for m in messages %}{{ m.content }}{% for t in tools %}{{ t }}{% endfor %}{% endfor %}",
    "string",
  ],
] as const)("the content format is detected in %s", ([, source, format]) => {
  expect(new ChatTemplate(source, namedTokens).contentFormat).toBe(format);
});

interface RecordedCase {
  readonly name: string;
  readonly template: string;
  readonly messages: readonly TemplateMessage[];
  readonly addGenerationPrompt: boolean;
  readonly rendered?: string;
  readonly refused?: string;
}

const recorded: readonly RecordedCase[] = JSON.parse(
  await readFile(new URL("../../fixtures/chat-templates/cases.json", import.meta.url), "utf8"),
);

function renderRecorded({ template, messages, addGenerationPrompt }: RecordedCase): string {
  return new ChatTemplate(template, namedTokens).render(messages, { addGenerationPrompt });
}

test.for(recorded.filter(({ refused }) => refused === undefined))("$name is rendered as by transformers", (one) => {
  expect(renderRecorded(one)).toBe(one.rendered);
});

test.for(recorded.filter(({ refused }) => refused !== undefined))("$name is rejected as by transformers", (one) => {
  expect(() => renderRecorded(one)).toThrow(one.refused);
});

interface RecordedToolCase extends Omit<RecordedCase, "addGenerationPrompt"> {
  readonly tools: readonly TemplateTool[] | null;
  readonly templateArguments: JsonObject;
}

const recordedWithTools: readonly RecordedToolCase[] = JSON.parse(
  await readFile(new URL("../../fixtures/chat-templates/tool-cases.json", import.meta.url), "utf8"),
);

function renderWithTools({ template, messages, tools, templateArguments }: RecordedToolCase): string {
  return new ChatTemplate(template, namedTokens).render(messages, {
    addGenerationPrompt: true,
    templateArguments,
    ...(tools !== null && { tools }),
  });
}

test.for(recordedWithTools.filter(({ refused }) => refused === undefined))(
  "$name is rendered with its calls as by transformers",
  (one) => {
    expect(renderWithTools(one)).toBe(one.rendered);
  },
);

test.for(recordedWithTools.filter(({ refused }) => refused !== undefined))(
  "$name is rejected with its calls as by transformers",
  (one) => {
    expect(() => renderWithTools(one)).toThrow(one.refused);
  },
);

test("variables of a request cannot replace those of the conversation", () => {
  const template = new ChatTemplate(
    "{{ bos_token }}{{ messages | length }}{{ add_generation_prompt }}{{ mood }}",
    namedTokens,
  );
  const templateArguments = { bos_token: "x", messages: [1, 2, 3], add_generation_prompt: false, mood: "!" };
  expect(template.render([], { addGenerationPrompt: true, templateArguments })).toBe("<s>0True!");
});

test.for([
  [
    "`string` makes a text of any value",
    "{{ none | string }},{{ true | string }},{{ 2 | string }},{{ missing | string }}",
    "None,True,2,",
  ],
  [
    "`string` writes lists like Python",
    "{{ values | string }}",
    `[None, False, 1.5, 'a\\n', "it's", {'b': [], 'c': ''}]`,
  ],
  ["`upper` accepts a list and nothing", "{{ types | upper }},{{ missing | upper }}", "['STRING', 'NULL'],"],
  ["`trim` and `replace` accept what is no string", "{{ none | trim }},{{ 121 | replace('1', 'x') }}", "None,x2x"],
  ["`~` joins any values", "{{ 'a' ~ missing ~ none ~ 1 ~ types }}", "aNone1['string', 'null']"],
  ["`strip` removes the given characters", "[{{ padded.strip('\\n') }}]", "[  code ]"],
  ["`lstrip` removes them on the left", "[{{ padded.lstrip('\\n') }}]", "[  code \n]"],
  ["`rstrip` removes them on the right", "[{{ padded.rstrip('\\n ') }}]", "[\n\n  code]"],
  ["`strip` alone removes white space", "[{{ padded.strip() }}]", "[code]"],
  ["`strip` knows characters of two units", "{{ '😀a😁'.strip('😁😀') }},{{ '😀'.strip('😁') }}", "a,😀"],
  [
    "a loop over something undefined is empty",
    "{% for a in missing %}a{% endfor %}{% for a in missing if a %}a{% endfor %}.",
    ".",
  ],
  [
    "tools and documents are None",
    "{{ 'tools' if tools is none }}, {{ 'documents' if documents is none }}",
    "tools, documents",
  ],
] as const)("as in Jinja, %s", ([, source, expected]) => {
  const templateArguments = {
    types: ["string", "null"],
    values: [null, false, 1.5, "a\n", "it's", { b: [], c: "" }],
    padded: "\n\n  code \n",
  };
  const template = new ChatTemplate(source, namedTokens);
  expect(template.render([], { addGenerationPrompt: true, templateArguments })).toBe(expected);
});

test("a template that does not end is interrupted, and named", () => {
  const nested = (depth: number): string =>
    depth === 0 ? "{% set n = 1 %}" : `{% for a${depth} in messages %}${nested(depth - 1)}{% endfor %}`;
  const template = new ChatTemplate(nested(9), namedTokens, { fileName: "chat_template.jinja" });
  const messages = Array.from({ length: 40 }, () => ({ role: "user", content: "a" }));
  expect(() => template.render(messages, { addGenerationPrompt: true })).toThrow(
    expect.objectContaining({
      code: "invalid_checkpoint",
      message: expect.stringMatching(/\(chat_template\.jinja\) takes longer than 1000 ms/),
    }),
  );
});

test("a conversation with a picture is rendered in LLaVA's format", () => {
  const messages = [
    { role: "user", content: [{ type: "image" }, { type: "text", text: "What is this?" }] },
    { role: "assistant", content: [{ type: "text", text: "A cat." }] },
    { role: "user", content: [{ type: "text", text: "Sure?" }] },
  ] as const;
  expect(new ChatTemplate(llava, namedTokens).render(messages, { addGenerationPrompt: true })).toBe(
    "USER: <image>\nWhat is this? ASSISTANT: A cat. USER: Sure? ASSISTANT:",
  );
});

test("the template knows the named tokens, and the generation prompt can be left out", () => {
  const messages = [
    { role: "user", content: "Hi" },
    { role: "assistant", content: "Hello" },
  ];
  const template = new ChatTemplate(mistral, namedTokens);
  expect(template.render(messages, { addGenerationPrompt: false })).toBe("<s>[INST] Hi [/INST]Hello</s>");
});

test("an exception raised by a template is the caller's error, in the template's words", () => {
  const template = new ChatTemplate(mistral, namedTokens);
  expect(() => template.render([{ role: "assistant", content: "Hi" }], { addGenerationPrompt: true })).toThrow(
    expect.objectContaining({
      code: "invalid_argument",
      parameter: "prompt.messages",
      message: expect.stringContaining("Roles must alternate"),
    }),
  );
});

test("an error inside a template is the checkpoint's error", () => {
  const template = new ChatTemplate("{{ messages.no.such.thing() }}", namedTokens);
  expect(() => template.render([{ role: "user", content: "" }], { addGenerationPrompt: true })).toThrow(
    expect.objectContaining({
      code: "invalid_checkpoint",
      message: expect.stringMatching(/fails on these messages \('no' is undefined\)/),
    }),
  );
  expect(() => new ChatTemplate("{% for %}", namedTokens)).toThrow(
    expect.objectContaining({ code: "invalid_checkpoint" }),
  );
});

const greeting = [{ role: "user", content: "Hi" }] as const;

test.for<readonly [string, string, JsonObject]>([
  ["have the wrong type", "{% for one in custom_tools or [] %}{{ one }}{% endfor %}", { custom_tools: 5 }],
  [
    "make it endless",
    "{% for a in range(n or 1) %}{% for b in range(n or 1) %}{% set c = 1 %}{% endfor %}{% endfor %}",
    { n: 100_000 },
  ],
])("a template that fails because arguments of the request %s is not to blame", ([, source, templateArguments]) => {
  const template = new ChatTemplate(source, namedTokens);
  expect(() => template.render(greeting, { addGenerationPrompt: true, templateArguments })).toThrow(
    expect.objectContaining({
      code: "invalid_argument",
      parameter: "templateArguments",
      message: expect.stringMatching(/^The chat template of the checkpoint .* on these templateArguments/),
    }),
  );
});

test("a template that fails without the request's arguments too is the checkpoint's error", () => {
  const template = new ChatTemplate("{{ messages.no.such.thing() }}", namedTokens);
  expect(() => template.render(greeting, { addGenerationPrompt: true, templateArguments: { true: 1 } })).toThrow(
    expect.objectContaining({ code: "invalid_checkpoint" }),
  );
});

test("a template for tools lies beside chat_template.jinja", async () => {
  const folder = await mkdtemp(join(tmpdir(), "fovea-template-"));
  try {
    await writeFile(join(folder, "chat_template.jinja"), "plain");
    expect((await loadChatTemplate(folder, namedTokens))?.forTools.source).toBe("plain");
    await mkdir(join(folder, "additional_chat_templates"));
    await writeFile(join(folder, "additional_chat_templates", "tool_use.jinja"), "with tools");
    const template = await loadChatTemplate(folder, namedTokens);
    expect([template?.source, template?.forTools.source]).toEqual(["plain", "with tools"]);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("a checkpoint's template for tools is used with tools", async () => {
  const folder = await mkdtemp(join(tmpdir(), "fovea-template-"));
  try {
    const templates = [
      { name: "default", template: "plain" },
      { name: "tool_use", template: "{{ tools | length }} tools" },
    ];
    await writeFile(join(folder, "tokenizer_config.json"), JSON.stringify({ chat_template: templates }));
    const template = (await loadChatTemplate(folder, namedTokens))!;
    const tool = { name: "f", description: null, parameters: null, strict: false };
    const conversation = { messages: [{ role: "user", content: "a" }] as const, addGenerationPrompt: true };
    const options = { template, imagePlaceholder: null };
    expect(renderChat(conversation, options).text).toBe("plain");
    expect(renderChat({ ...conversation, tools: [tool, tool] }, options).text).toBe("2 tools");
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("text that looks like a template is not evaluated", () => {
  const template = new ChatTemplate(mistral, namedTokens);
  const content = "{{ bos_token }}{% raw %}";
  expect(template.render([{ role: "user", content }], { addGenerationPrompt: true })).toBe(
    `<s>[INST] ${content} [/INST]`,
  );
});

test.for([
  [
    "processor_config.json",
    { "processor_config.json": '{"chat_template":"processor"}', "chat_template.jinja": "jinja" },
    "processor",
  ],
  [
    "the one named default in processor_config.json",
    { "processor_config.json": '{"chat_template":{"tool_use":"t","default":"d"}}', "chat_template.jinja": "jinja" },
    "d",
  ],
  [
    "another file than a processor_config.json without one",
    { "processor_config.json": '{"chat_template":null}', "chat_template.jinja": "jinja" },
    "jinja",
  ],
  [
    "chat_template.jinja",
    { "chat_template.jinja": "jinja", "chat_template.json": '{"chat_template":"json"}' },
    "jinja",
  ],
  [
    "chat_template.json",
    { "chat_template.json": '{"chat_template":"json"}', "tokenizer_config.json": '{"chat_template":"config"}' },
    "json",
  ],
  ["tokenizer_config.json", { "tokenizer_config.json": '{"chat_template":"config"}' }, "config"],
  [
    "the one named default",
    {
      "tokenizer_config.json": '{"chat_template":[{"name":"tools","template":"t"},{"name":"default","template":"d"}]}',
    },
    "d",
  ],
  ["nowhere", { "tokenizer_config.json": "{}" }, null],
] as const)("the template is taken from %s", async ([, files, expected]) => {
  const folder = await mkdtemp(join(tmpdir(), "fovea-template-"));
  try {
    for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
    const template = await loadChatTemplate(folder, namedTokens);
    expect(template?.render([], { addGenerationPrompt: false }) ?? null).toBe(expected);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("a template of the settings that fails on a conversation is not called the checkpoint's", async () => {
  const template = (await loadChatTemplate(tmpdir(), namedTokens, { chatTemplate: "{{ nothing() }}" }))!;
  expect(() => template.render([], { addGenerationPrompt: false })).toThrow(
    /^The chat template of the settings fails on these messages/,
  );
});

test("the settings' template replaces the checkpoint's, and the family's is for checkpoints without one", async () => {
  const folder = await mkdtemp(join(tmpdir(), "fovea-template-"));
  const rendered = async (settings: Parameters<typeof loadChatTemplate>[2]) =>
    (await loadChatTemplate(folder, namedTokens, settings))?.render([], { addGenerationPrompt: false });
  try {
    expect(await rendered({ familyTemplate: "family" })).toBe("family");
    await writeFile(join(folder, "chat_template.jinja"), "own");
    expect(await rendered({ familyTemplate: "family" })).toBe("own");
    await writeFile(join(folder, "given.jinja"), "file of {{ bos_token }}");
    expect(await rendered({ chatTemplate: join(folder, "given.jinja") })).toBe("file of <s>");
    expect(await rendered({ chatTemplate: "text of {{ bos_token }}" })).toBe("text of <s>");
    const missing = rendered({ chatTemplate: join(folder, "missing.jinja") });
    await expect(missing).rejects.toMatchObject({ code: "invalid_configuration", setting: "chatTemplate" });
    const broken = rendered({ chatTemplate: "{% if %}" });
    await expect(broken).rejects.toMatchObject({ code: "invalid_configuration", setting: "chatTemplate" });
  } finally {
    await rm(folder, { recursive: true });
  }
});

test.for([
  ["auto", "parts"],
  ["string", "string"],
  ["openai", "parts"],
] as const)("the content format %s gives LLaVA's template %s", async ([chatTemplateContentFormat, format]) => {
  const settings = { chatTemplate: llava, chatTemplateContentFormat };
  expect((await loadChatTemplate(tmpdir(), namedTokens, settings))?.contentFormat).toBe(format);
});
