import { expect, test } from "vitest";

import type { ChatMessage, Prompt } from "../../../engine/contract/generation-request.ts";
import { reasoningStartOf } from "../../../engine/input/reasoning.ts";

const markers = { start: "<think>", end: "</think>", startsInside: false };
const thinker = { ...markers, startsInside: true };

const chat = (last: ChatMessage, continueFinalMessage: boolean): Prompt => ({
  kind: "chat",
  messages: [{ role: "user", content: "How many?" }, last],
  addGenerationPrompt: !continueFinalMessage,
  continueFinalMessage,
});
const assistant = (content: string, reasoning?: string): ChatMessage => ({
  role: "assistant",
  content,
  ...(reasoning !== undefined && { reasoning }),
});

test.for<[name: string, text: string, prompt: Prompt, start: string, ofThinker: string]>([
  ["an open prompt", "Q<|assistant|>", chat(assistant("Two."), false), "before", "inside"],
  ["a prompt with the start marker", "Q<|assistant|><think>\n", chat(assistant("Two."), false), "inside", "inside"],
  ["a prompt with both", "Q<think>\n\n</think>\n\n", chat(assistant("Two."), false), "after", "after"],
  ["a text to continue", "Q<|assistant|>Two", chat(assistant("Two"), true), "after", "after"],
  ["a text after thinking", "Q<think>Hm.</think>Two", chat(assistant("Two", "Hm."), true), "after", "after"],
  ["an empty text to continue", "Q<|assistant|>", chat(assistant(""), true), "before", "inside"],
  ["thinking to continue", "Q<think>\nHm", chat(assistant("", "Hm"), true), "continued", "continued"],
  ["thinking within the text", "Q<think>\nHm", chat(assistant("<think>\nHm"), true), "continued", "continued"],
  ["whole thinking within the text", "Q", chat(assistant("<think>Hm.</think>Two"), true), "after", "after"],
])("the output of %s starts in the right place", ([, text, prompt, start, ofThinker]) => {
  expect(reasoningStartOf({ text, prompt }, markers)).toBe(start);
  expect(reasoningStartOf({ text, prompt }, thinker)).toBe(ofThinker);
});
