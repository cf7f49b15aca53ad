import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";

import type { ChatMessage, ContentPart } from "../../../engine/contract/generation-request.ts";
import { JsonFloat } from "../../../engine/contract/tools.ts";
import { renderChat } from "../../../engine/input/chat-prompt.ts";
import { ChatTemplate } from "../../../engine/text/chat-template.ts";

const printing = new ChatTemplate("{% for m in messages %}[{{ m.content }}]{% endfor %}", {});
const walking = new ChatTemplate(
  "{% for m in messages %}[{% for p in m.content %}{{ '<image>' if p.type == 'image' else p.text | trim }}|{% endfor %}]{% endfor %}",
  {},
);

function render(template: ChatTemplate, ...content: ContentPart[]) {
  const messages = [{ role: "user", content }] as const;
  return renderChat({ messages, addGenerationPrompt: true }, { template, imagePlaceholder: "<image>" });
}

const image = (reference: string): ContentPart => ({ type: "image", reference });
const text = (value: string): ContentPart => ({ type: "text", text: value });

test.for([
  ["joined by newlines", [text("a"), text("b")], "[a\nb]"],
  ["with missing placeholders put before them", [text("a"), image("1"), image("2")], "[<image>\n<image>\na]"],
  ["with placeholders kept where they are", [image("1"), text("a <image> b")], "[a <image> b]"],
  ["with only the missing ones added", [image("1"), image("2"), text("a <image> b")], "[<image>\na <image> b]"],
] as const)("texts for a template that prints the content are %s", ([, parts, expected]) => {
  expect(render(printing, ...parts)).toMatchObject({ text: expected, literal: [] });
});

test("a conversation without messages is rejected, not its template", () => {
  const template = new ChatTemplate("{{ messages[0].role.x }}", {});
  const render = () => renderChat({ messages: [], addGenerationPrompt: true }, { template, imagePlaceholder: null });
  expect(render).toThrow(expect.objectContaining({ code: "invalid_argument", parameter: "prompt.messages" }));
});

test("a conversation may spell 65,536 placeholders as text, in all messages together", () => {
  const half = "<image>".repeat(2 ** 15);
  const conversation = (...texts: string[]) => ({
    messages: texts.map((content) => ({ role: "user", content }) as const),
    addGenerationPrompt: true,
  });
  const options = { template: printing, imagePlaceholder: "<image>" };
  expect(renderChat(conversation(half, half), options).literal).toHaveLength(2 ** 16);
  expect(() => renderChat(conversation(half, half, "<image>"), options)).toThrow(
    expect.objectContaining({ code: "invalid_argument", parameter: "prompt.messages" }),
  );
  expect(render(printing, image("1"), text(half + half + "<image>")).literal).toHaveLength(2 ** 16);
});

test("placeholders in a printed text beyond the number of images are literal", () => {
  const rendered = render(printing, image("1"), text("a <image> b <image>"));
  expect(rendered.text).toBe("[a <image> b <image>]");
  expect(rendered.literal.map(({ start, end }) => [start, rendered.text.slice(start, end)])).toEqual([[13, "<image>"]]);
});

test("a template that iterates over parts keeps their order, and every placeholder in a text is literal", () => {
  const rendered = render(walking, text(" what is <image>? "), image("1"), text("x"), image("2"));
  expect(rendered.text).toBe("[what is <image>?|<image>|x|<image>|]");
  expect(rendered.literal).toEqual([{ start: 9, end: 16 }]);
});

test("a message given as a string is one text part, and private use characters pass through", () => {
  const messages = [
    { role: "user", content: "\uE000\uE001 <image>" },
    { role: "assistant", content: "\uE002" },
  ] as const;
  const rendered = renderChat(
    { messages, addGenerationPrompt: true },
    { template: walking, imagePlaceholder: "<image>" },
  );
  expect(rendered.text).toBe("[\uE000\uE001 <image>|][\uE002|]");
  expect(rendered.literal).toEqual([{ start: 4, end: 11 }]);
});

const spelled = new ChatTemplate(
  "{% for m in messages %}[{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}?{% endfor %}{% endif %}]{% endfor %}",
  {},
  { spellsImages: true },
);
const markers = { imageStart: "<i>", imageEnd: "</i>" };

test.for([
  ["where they are, between their markers", [text("a"), image("1"), text("b")], "[a<i><image></i>b]"],
  ["where a client wrote them", [image("1"), text("<i><image></i>a")], "[<i><image></i>a]"],
  ["before a text with too few of them", [image("1"), image("2"), text("a <image>")], "[<i><image></i>\na <image>]"],
] as const)("images of a template that shall not place them stand %s", ([, content, expected]) => {
  const messages = [{ role: "user", content }] as const;
  const options = { template: spelled, imagePlaceholder: "<image>", markers };
  expect(renderChat({ messages, addGenerationPrompt: true }, options)).toEqual({ text: expected, literal: [] });
});

test("placeholders before a printed text have the model's markers, as in vLLM", () => {
  const messages = [{ role: "user", content: [text("a <image>"), image("1"), image("2")] }] as const;
  const options = { template: printing, imagePlaceholder: "<image>", markers };
  const rendered = renderChat({ messages, addGenerationPrompt: true }, options);
  expect(rendered).toEqual({ text: "[<i><image></i>\na <image>]", literal: [] });
});

test("a placeholder too many is literal in a text with the client's own", () => {
  const messages = [{ role: "user", content: [image("1"), text("<image> a <image>")] }] as const;
  const options = { template: spelled, imagePlaceholder: "<image>", markers };
  const rendered = renderChat({ messages, addGenerationPrompt: true }, options);
  expect(rendered).toEqual({ text: "[<image> a <image>]", literal: [{ start: 11, end: 18 }] });
});

test("a template that takes only parts places images itself, as does any that is told to", () => {
  expect(spelled.contentFormat).toBe("spelled");
  expect(new ChatTemplate(walking.source, {}, { spellsImages: true }).contentFormat).toBe("parts");
  const told = new ChatTemplate(spelled.source, {}, { spellsImages: true, contentFormat: "parts" });
  expect(told.contentFormat).toBe("parts");
});

const either = `{% for m in messages %}<{{ m.role }}>{% if m.role == 'system' %}{{ m.content | trim }}{% elif m.role == 'assistant' %}{{ m.content + eos_token }}{% if m.content and m.tool_calls %}
{% endif %}{% for call in m.tool_calls or [] %}{{ call.function.name }}()
{% endfor %}{% elif m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ '<image>' if p.type == 'image' else p.text }}|{% endfor %}{% endif %}{% endfor %}`;

test("a template that accepts strings and parts gets each message as it was given, and the system's as a string", () => {
  const rendered = renderChat(
    {
      messages: [
        { role: "system", content: [text(" Be brief"), text(".\n")] },
        { role: "user", content: "an <image>?" },
        { role: "assistant", content: "", toolCalls: [{ id: "1", name: "look", arguments: {} }] },
        { role: "user", content: [text("a"), image("1")] },
        { role: "assistant", content: "Yes" },
      ],
      addGenerationPrompt: true,
    },
    { template: new ChatTemplate(either, { eos_token: "</s>" }), imagePlaceholder: "<image>" },
  );
  expect(rendered.text).toBe(
    "<system>Be brief.<user>an <image>?<assistant></s>look()\n<user>a|<image>|<assistant>Yes</s>",
  );
  expect(rendered.literal).toEqual([{ start: 26, end: 33 }]);
});

test.for([
  ["pixtral", "<s>[INST]Q[/INST]A</s>[INST]Be brief.\n\nR[/INST]"],
  ["glm-4.1v", "[gMASK]<sop><|system|>\nBe brief.<|user|>\nQ<|assistant|>\nA<|user|>\nR<|assistant|>"],
])("the template of %s prints a system message without a loop", async ([name, expected]) => {
  const file = new URL(`../../fixtures/hub/${name}/v5/chat_template.jinja`, import.meta.url);
  const template = new ChatTemplate(await readFile(file, "utf8"), { bos_token: "<s>", eos_token: "</s>" });
  const messages = [
    { role: "system", content: "Be brief." },
    { role: "user", content: "Q" },
    { role: "assistant", content: "A" },
    { role: "user", content: "R" },
  ] as const;
  const options = { template, imagePlaceholder: null };
  expect(renderChat({ messages, addGenerationPrompt: true }, options).text).toBe(expected);
  const asParts = messages.map(({ role, content }) => ({
    role,
    content: role === "system" ? [text(content)] : content,
  }));
  expect(renderChat({ messages: asParts, addGenerationPrompt: true }, options).text).toBe(expected);
});

test("without images in the model, no text is a placeholder", () => {
  const messages = [{ role: "user", content: "an <image>" }] as const;
  expect(renderChat({ messages, addGenerationPrompt: true }, { template: printing, imagePlaceholder: null })).toEqual({
    text: "[an <image>]",
    literal: [],
  });
});

test.for([null, "<image>"])("floats of calls are printed as floats (image placeholder: %s)", (imagePlaceholder) => {
  const template = new ChatTemplate("{{ messages[0].tool_calls[0].function.arguments | tojson }}", {});
  const call = { id: "1", name: "f", arguments: { price: new JsonFloat(10), counts: [10, new JsonFloat(1e20)] } };
  const messages = [{ role: "assistant", content: "", toolCalls: [call] }] as const;
  expect(renderChat({ messages, addGenerationPrompt: true }, { template, imagePlaceholder }).text).toBe(
    '{"price": 10.0, "counts": [10, 1e+20]}',
  );
});

test("placeholders in calls, results, thinking, tools and variables mean no image", () => {
  const template = new ChatTemplate(
    "{% for m in messages %}{{ m.content }}{{ m.tool_calls | default(none) | tojson }}{{ m.reasoning_content }}{{ m.name }}{% endfor %}{{ tools | tojson }}{{ mood }}",
    {},
  );
  const call = { id: "1", name: "f", arguments: { "<image>": ["<image>"] } };
  const rendered = renderChat(
    {
      messages: [
        { role: "assistant", content: "", toolCalls: [call], reasoning: "<image>" },
        { role: "tool", content: [image("1"), text("<image>")], name: "<image>" },
      ],
      addGenerationPrompt: true,
      tools: [{ name: "f", description: "<image>", parameters: { type: "object", title: "<image>" }, strict: false }],
      templateArguments: { mood: "<image>" },
    },
    { template, imagePlaceholder: "<image>" },
  );
  const places = Array.from(rendered.text.matchAll(/<image>/g), ({ index }) => index);
  const meant = places.filter((place) => !rendered.literal.some(({ start }) => start === place));
  expect(places).toHaveLength(8);
  // The text of the result has a placeholder for its picture.
  expect(meant).toHaveLength(1);
  expect(rendered.literal).toHaveLength(7);
});

test("a placeholder in a value that the template prints as Python or ASCII means no image", () => {
  const source = "{{ tools }}{{ tools | string }}{{ tools | tojson(ensure_ascii=true) }}";
  const rendered = renderChat(
    {
      messages: [{ role: "user", content: "Hi" }],
      addGenerationPrompt: true,
      tools: [{ name: "f", description: "é <image>", parameters: {}, strict: false }],
    },
    { template: new ChatTemplate(source, {}), imagePlaceholder: "<image>" },
  );
  const printed = "[{'type': 'function', 'function': {'name': 'f', 'description': 'é <image>', 'parameters': {}}}]";
  const json = String.raw`[{"type": "function", "function": {"name": "f", "description": "\u00e9 <image>", "parameters": {}}}]`;
  expect(rendered.text).toBe(printed + printed + json);
  expect(rendered.literal.map(({ start, end }) => rendered.text.slice(start, end))).toEqual(
    Array.from({ length: 3 }, () => "<image>"),
  );
});

interface ContinuedCase {
  readonly name: string;
  readonly template: string;
  readonly messages: readonly {
    readonly role: ChatMessage["role"];
    readonly content:
      | string
      | readonly ({ readonly type: "text"; readonly text: string } | { readonly type: "image" })[];
  }[];
  readonly rendered: string;
}

const continued = { addGenerationPrompt: false, continueFinalMessage: true } as const;

const continuedCases = JSON.parse(
  await readFile(new URL("../../fixtures/chat-templates/continued.json", import.meta.url), "utf8"),
) as readonly ContinuedCase[];

test.for(continuedCases)(
  "a final message is continued where transformers continues it: $name",
  ({ template: source, messages, rendered }) => {
    const template = new ChatTemplate(source, { bos_token: "<s>", eos_token: "</s>" });
    const conversation = messages.map(({ role, content }): ChatMessage => {
      if (typeof content === "string") return { role, content };
      return { role, content: content.map((part) => (part.type === "text" ? part : image("1"))) };
    });
    const options = { template, imagePlaceholder: "<image>" };
    expect(renderChat({ messages: conversation, ...continued }, options).text).toBe(rendered);
  },
);

test("a final message is cut before the literal placeholders that follow it are marked", () => {
  const messages = [
    { role: "user", content: "a <image>" },
    { role: "assistant", content: "b <image>" },
  ] as const;
  const rendered = renderChat({ messages, ...continued }, { template: printing, imagePlaceholder: "<image>" });
  expect(rendered.text).toBe("[a <image>][b <image>");
  expect(rendered.literal).toEqual([
    { start: 3, end: 10 },
    { start: 14, end: 21 },
  ]);
});

test.for(["reasoning_content", "reasoning", "thinking"])("templates read the thinking of a message as %s", (name) => {
  const source = `{% for m in messages %}{{ m.${name} if m.${name} is defined else "none" }}|{% endfor %}`;
  const messages = [
    { role: "user", content: "Q" },
    { role: "assistant", content: "A", reasoning: "Hm" },
  ] as const;
  const template = new ChatTemplate(source, {});
  const { text: rendered } = renderChat({ messages, addGenerationPrompt: true }, { template, imagePlaceholder: null });
  expect(rendered).toBe("none|Hm|");
});

test("thinking is continued in a final message without text", () => {
  const source =
    "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n" +
    "</think>\n\n{% endif %}{{ m.content }}</{{ m.role }}>{% endfor %}";
  const render = (template: string, last: ChatMessage): string => {
    const messages = [{ role: "user", content: "Q" } as const, last];
    return renderChat({ messages, ...continued }, { template: new ChatTemplate(template, {}), imagePlaceholder: null })
      .text;
  };
  const thought = { role: "assistant", content: "", reasoning: "Let me " } as const;
  expect(render(source, thought)).toBe("<user>Q</user><assistant><think>\nLet me ");
  expect(render(source.replace("reasoning_content }}", "reasoning_content | trim }}"), thought)).toBe(
    "<user>Q</user><assistant><think>\nLet me",
  );
  const parts = [{ type: "text", text: " " }] as const;
  expect(render(source, { ...thought, content: parts })).toBe("<user>Q</user><assistant><think>\nLet me ");
  expect(render(source, { ...thought, content: "Two" })).toBe(
    "<user>Q</user><assistant><think>\nLet me \n</think>\n\nTwo",
  );
  const silent = "{% for m in messages %}{{ m.content }}{% endfor %}";
  expect(() => render(silent, thought)).toThrow(/leaves out the thinking of the final message/);
});

test("a final message with calls cannot be continued", () => {
  const toolCalls = [{ id: "1", name: "look", arguments: {} }];
  const messages = [{ role: "assistant", content: "Let me", toolCalls }] as const;
  expect(() => renderChat({ messages, ...continued }, { template: printing, imagePlaceholder: null })).toThrow(
    /has calls after its text/,
  );
});

test("without text in the final message there is nothing to continue", () => {
  const messages = [{ role: "user", content: [image("1")] }] as const;
  expect(() => renderChat({ messages, ...continued }, { template: walking, imagePlaceholder: "<image>" })).toThrow(
    /no text/,
  );
  const dropping = new ChatTemplate("{% for m in messages %}{{ m.role }}{% endfor %}", {});
  expect(() =>
    renderChat(
      { messages: [{ role: "user", content: "a" }], ...continued },
      { template: dropping, imagePlaceholder: "<image>" },
    ),
  ).toThrow(/leaves out the text/);
});
