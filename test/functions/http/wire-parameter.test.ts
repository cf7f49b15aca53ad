import { expect, test } from "vitest";

import { callWithin } from "../../../engine/call-within.ts";
import { EngineError } from "../../../engine/index.ts";
import { toErrorAnswer } from "../../../functions/http/errors.ts";
import { toWireWords } from "../../../functions/http/wire-parameter.ts";

test("names are replaced as whole words, wherever they are", () => {
  const text = "topP, (topK), x.maxTokens and stopp, not topPs";
  expect(toWireWords(text, { names: { maxTokens: "max_output_tokens" } })).toBe(
    "top_p, (top_k), x.max_output_tokens and stopp, not topPs",
  );
});

test("words of the client that all objects have stay as they are", () => {
  const text = "json requires hasOwnProperty, toString and valueOf";
  expect(toWireWords(text)).toBe(text);
  expect(toWireWords(text, { names: { maxTokens: "max_output_tokens" } })).toBe(text);
});

// A schema may have 256 KiB, and a message about it quotes names in it.
test("a text of letters is read once, however long it is", () => {
  const letters = "a".repeat(250_000);
  expect(callWithin(1000, () => toWireWords(`${letters} topP ${letters}`))).toBe(`${letters} top_p ${letters}`);
});

test("a message is shortened before fields in it are renamed", () => {
  const lengths: number[] = [];
  const paths = {
    prompt: "messages",
    images: [],
    videos: [],
    documents: [],
    structuredOutput: "tools",
    rename: (text: string) => {
      lengths.push(text.length);
      return text;
    },
  };
  const error = new EngineError("invalid_argument", "tools[0].function.parameters ".repeat(10_000), {
    parameter: "samplingParams.structuredOutput",
  });
  const { body } = toErrorAnswer(error, "id", paths);
  expect(Math.max(...lengths)).toBeLessThan(2100);
  expect(body.error.message).toMatch(/^tools\[0\]\.function\.parameters .*…$/);
});
