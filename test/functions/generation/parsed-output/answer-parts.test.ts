import { expect, test } from "vitest";

import type { RequestOutput } from "../../../../engine/index.ts";
import { AnswerParts } from "../../../../functions/generation/parsed-output/answer-parts.ts";
import type { ParsedDelta } from "../../../../functions/generation/parsed-output/parsed-delta.ts";

const output: RequestOutput = {
  requestId: "a",
  index: 0,
  prompt: null,
  text: "",
  tokenIds: [7],
  logprobs: null,
  finishReason: null,
  stopReason: null,
  numPromptTokens: 5,
  numImageTokens: 0,
  numCachedTokens: 0,
  numOutputTokens: 1,
};
const call = { index: 0, start: { id: "1", name: "look" }, arguments: "{}" };

function partsOf(...deltas: readonly ParsedDelta[]): unknown[] {
  const parts = new AnswerParts();
  const rest = { index: 0, output, finishReason: null, numReasoningTokens: 0, answerLogprobs: [] };
  for (const delta of deltas) parts.append({ ...rest, delta });
  parts.finish(true);
  return parts.parts.map(({ kind, text }) => [kind, text]);
}

test("white space around thinking and calls is no text of its own", () => {
  const deltas = [{ reasoning: "Hm." }, { content: "\n\n" }, { toolCalls: [call] }, { content: "\n" }];
  expect(partsOf(...deltas)).toEqual([
    ["reasoning", "Hm."],
    ["call", "{}"],
  ]);
});

test("white space before and within a text belongs to it", () => {
  expect(partsOf({ content: " " }, { content: "\na" }, { content: " " }, { content: "b" })).toEqual([
    ["text", " \na b"],
  ]);
});

test("white space alone is the text of an answer without another part", () => {
  expect(partsOf({ content: " " })).toEqual([["text", " "]]);
  expect(partsOf()).toEqual([["text", ""]]);
});
