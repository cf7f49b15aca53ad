/** models/fovea-tools, served: its template, and its held-out turns as transformers answers them. */
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { Template } from "@huggingface/jinja";
import OpenAI from "openai";
import { afterAll, beforeAll, expect, test } from "vitest";

import { startService } from "../support/running-service.ts";
import type { RunningService } from "../support/running-service.ts";

interface Message {
  readonly role: string;
  readonly content: string;
  readonly tool_calls?: readonly object[];
}

interface Conversation {
  readonly half: string;
  readonly kind: string;
  readonly tools: readonly object[];
  readonly messages: readonly Message[];
}

const folder = fileURLToPath(new URL("../../models/fovea-tools", import.meta.url));
const template = new Template(await readFile(`${folder}/chat_template.jinja`, "utf8"));
const conversations = (await readFile(`${folder}/heldout/conversations.jsonl`, "utf8"))
  .trimEnd()
  .split("\n")
  .map((line) => JSON.parse(line) as Conversation);

let service: RunningService;
let client: OpenAI;

beforeAll(async () => {
  service = await startService({ MODEL: folder });
  client = new OpenAI({ baseURL: `${service.baseUrl}/v1`, apiKey: "none", maxRetries: 0 });
});

afterAll(() => service[Symbol.asyncDispose]());

function render({ tools }: Conversation, messages: readonly Message[], addGenerationPrompt: boolean): string {
  return template.render({ messages, tools, add_generation_prompt: addGenerationPrompt });
}

test("its chat template renders tools, calls and results as transformers does", async () => {
  const expected = JSON.parse(await readFile(`${folder}/heldout/rendered.json`, "utf8")) as {
    line: number;
    text: string;
  }[];
  expect(expected.length).toBeGreaterThan(20);
  for (const { line, text } of expected) {
    const conversation = conversations[line]!;
    expect(render(conversation, conversation.messages, false)).toBe(text);
    // The AI SDK's and other clients' content of a turn that only calls.
    const withoutContent = conversation.messages.map((message) =>
      message.tool_calls ? { ...message, content: null as unknown as string } : message,
    );
    expect(render(conversation, withoutContent, false)).toBe(text);
  }
});

/** The assistant's turns of every 5th conversation: prompt and right text. */
function turns(): { prompt: string; right: string }[] {
  return conversations
    .filter((_, line) => line % 5 === 0)
    .flatMap((conversation) =>
      conversation.messages.flatMap(({ role }, index) => {
        if (role !== "assistant") return [];
        const prompt = render(conversation, conversation.messages.slice(0, index), true);
        const whole = render(conversation, conversation.messages.slice(0, index + 1), false);
        return [{ prompt, right: whole.slice(prompt.length).replace(/<\|im_end\|>\n$/, "") }];
      }),
    );
}

test("its greedy answers to held-out turns are right as often as the README says", async () => {
  const asked = turns();
  const texts = await Promise.all(
    asked.map(async ({ prompt }) => {
      const request = { model: "fovea-tools", prompt, max_tokens: 160, temperature: 0 };
      return (await client.completions.create(request)).choices[0]!.text;
    }),
  );
  const numRight = texts.filter((text, index) => text === asked[index]!.right).length;
  expect(asked.length).toBeGreaterThan(100);
  expect(numRight / asked.length).toBeGreaterThan(0.9);
});
