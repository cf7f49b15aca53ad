import { describe, expect, test } from "vitest";

import type { ChatMessage, ContentPart } from "../../../engine/index.ts";
import { renderChat } from "../../../engine/input/chat-prompt.ts";
import { ChatTemplate } from "../../../engine/text/chat-template.ts";

/** Iterates over parts, and knows nothing of pairs. */
const general = new ChatTemplate(
  "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}" +
    "{{ '<image>' if p.type == 'image' else p.text }}{% endfor %}{% endif %}{% endfor %}" +
    "{{ '<assistant>' if add_generation_prompt }}{{ '<no_think>' if enable_thinking is false }}",
  {},
);
/** vLLM's way to write a pair. */
const printing = new ChatTemplate(
  "{{ instruction | default('find') }}|{{ messages | selectattr('role', 'eq', 'query') | map(attribute='content') | first }}|" +
    "{{ messages | selectattr('role', 'eq', 'document') | map(attribute='content') | first }}",
  {},
);
/** With parts, and the instruction as a system message. */
const walking = new ChatTemplate(
  "{% set system = messages | selectattr('role', 'eq', 'system') | list %}" +
    "{{ system[0].content if system else 'find' }}" +
    "{% for role in ['query', 'document'] %}|{% set message = messages | selectattr('role', 'eq', role) | first %}" +
    "{% if message.content is string %}{{ message.content }}{% else %}" +
    "{% for p in message.content %}{{ '<image>' if p.type == 'image' else p.text }}{% endfor %}{% endif %}{% endfor %}",
  {},
);

const image: ContentPart = { type: "image", reference: "data:," };
const text = (words: string): ContentPart => ({ type: "text", text: words });

function render(
  template: ChatTemplate,
  query: ChatMessage["content"],
  document: ChatMessage["content"],
  { instruction, acceptsImages = true }: { readonly instruction?: string; readonly acceptsImages?: boolean } = {},
): string {
  const pair: readonly ChatMessage[] = [
    { role: "query", content: query },
    { role: "document", content: document },
  ];
  const messages: readonly ChatMessage[] =
    instruction === undefined ? pair : [{ role: "system", content: instruction }, ...pair];
  const templateArguments = instruction === undefined ? {} : { instruction };
  return renderChat(
    { messages, addGenerationPrompt: true, templateArguments },
    { template, imagePlaceholder: acceptsImages ? "<image>" : null },
  ).text;
}

const task =
  '<system>Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be "yes" or "no".';

describe("without roles for them, a query and a document become the question", () => {
  test("of Qwen3-VL-Reranker for a model with pictures", () => {
    expect(render(general, "red?", [image, text("a circle")])).toBe(
      `${task}<user><Instruct>: Given a search query, retrieve relevant candidates that answer the query.<Query>:red?` +
        "\n<Document>:<image>a circle<assistant><no_think>",
    );
    expect(render(general, [image], "a circle", { instruction: "Find its name." })).toBe(
      `${task}<user><Instruct>: Find its name.<Query>:<image>\n<Document>:a circle<assistant><no_think>`,
    );
  });

  test("of Qwen3-Reranker for a model of texts", () => {
    expect(render(general, "red?", "a circle", { acceptsImages: false })).toBe(
      `${task}<user><Instruct>: Given a web search query, retrieve relevant passages that answer the query\n` +
        "<Query>: red?\n<Document>: a circle<assistant><no_think>",
    );
    const asked = { acceptsImages: false, instruction: "Find its name." };
    expect(render(general, [text("red?")], [text("a"), text("b")], asked)).toBe(
      `${task}<user><Instruct>: Find its name.\n<Query>: red?\n<Document>: a\nb<assistant><no_think>`,
    );
  });
});

describe("a template with roles for them writes them itself", () => {
  test.for([printing, walking])("%#", (template) => {
    expect(render(template, "red?", "a circle")).toBe("find|red?|a circle");
    expect(render(template, "red?", "a circle", { instruction: "name" })).toBe("name|red?|a circle");
  });

  test("with pictures at their places, or before a text that it prints", () => {
    expect(render(walking, "red?", [text("a "), image, text(" b")])).toBe("find|red?|a <image> b");
    expect(render(printing, [image, text("red?")], [text("a"), image])).toBe("find|<image>\nred?|<image>\na");
  });
});

test("other conversations stay as they are", () => {
  const messages: readonly ChatMessage[] = [{ role: "query", content: "a" }];
  const { text: rendered } = renderChat(
    { messages, addGenerationPrompt: false },
    { template: general, imagePlaceholder: null },
  );
  expect(rendered).toBe("<query>a");
});
