/** What belongs to thinking among the tokens of an output. */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import type { DecodedTokenLogprobs, RequestOutput } from "../../../../engine/index.ts";
import { AnswerParts } from "../../../../functions/generation/parsed-output/answer-parts.ts";
import { hermesFormat } from "../../../../functions/generation/parsed-output/formats/hermes.ts";
import { reasoningFormats } from "../../../../functions/generation/parsed-output/model-formats.ts";
import { parseGenerations } from "../../../../functions/generation/parsed-output/parse-generations.ts";
import type { ParsedGeneration } from "../../../../functions/generation/parsed-output/parsed-delta.ts";
import { parsingOf } from "./parsed.ts";

const qwen3 = reasoningFormats.find(({ name }) => name === "qwen3")!;
const parsing = parsingOf(hermesFormat, { reasoning: qwen3 });

function logprobsOf(token: string): DecodedTokenLogprobs {
  return { sampled: { tokenId: 7, token, bytes: [...Buffer.from(token)], logprob: -0.5, rank: 1 }, top: [] };
}

/** One output per list of tokens, as the engine merges them. */
function outputsOf(lists: readonly (readonly string[])[]): RequestOutput[] {
  return lists.map((tokens, index) => {
    return {
      requestId: "a",
      index: 0,
      prompt: null,
      reasoningStart: "before" as const,
      text: tokens.join(""),
      tokenIds: tokens.map(() => 7),
      textEnds: tokens.map((_, last) => tokens.slice(0, last + 1).join("").length),
      logprobs: tokens.map(logprobsOf),
      finishReason: index === lists.length - 1 ? ("stop" as const) : null,
      stopReason: null,
      numPromptTokens: 5,
      numImageTokens: 0,
      numCachedTokens: 0,
      numOutputTokens: 1,
    };
  });
}

async function parse(lists: readonly (readonly string[])[], includesReasoning = true): Promise<ParsedGeneration[]> {
  async function* generations() {
    for (const output of outputsOf(lists)) yield { index: 0, output };
  }
  const parsed: ParsedGeneration[] = [];
  for await (const each of parseGenerations(generations(), { ...parsing, includesReasoning })) parsed.push(each);
  return parsed;
}

const numThinking = (parsed: readonly ParsedGeneration[]): number => parsed.at(-1)!.numReasoningTokens;
const answerTokens = (parsed: readonly ParsedGeneration[]): string[] =>
  parsed.flatMap(({ answerLogprobs }) => answerLogprobs.map(({ sampled }) => sampled.token));

const thinking = ["<think>", "Two", " cities", ".", "</think>", "\n\n"];
const call = ["<tool_call>", '{"name": "get_weather", ', '"arguments": ', "{}}", "</tool_call>"];

describe("tokens of thinking", () => {
  test.for([true, false])("are counted alike however a slow reader has them merged, shown: %s", async (isShown) => {
    const tokens = [...thinking, "Hel", "lo", "."];
    const each = await parse(
      tokens.map((token) => [token]),
      isShown,
    );
    expect(numThinking(each)).toBe(5);
    await fc.assert(
      fc.asyncProperty(fc.uniqueArray(fc.integer({ min: 1, max: tokens.length - 1 })), async (cuts) => {
        const starts = [0, ...cuts.sort((left, right) => left - right)];
        const merged = await parse(
          starts.map((start, index) => tokens.slice(start, starts[index + 1])),
          isShown,
        );
        expect([numThinking(merged), answerTokens(merged)]).toEqual([numThinking(each), answerTokens(each)]);
        const textOf = (parsed: readonly ParsedGeneration[], field: "content" | "reasoning") =>
          parsed.map(({ delta }) => delta[field] ?? "").join("");
        for (const field of ["content", "reasoning"] as const) expect(textOf(merged, field)).toBe(textOf(each, field));
      }),
    );
  });

  test("are not those of the call that follows", async () => {
    expect(numThinking(await parse([...thinking, ...call].map((token) => [token])))).toBe(5);
  });
});

describe("logprobs of the answer", () => {
  test.for([
    ["thinking", thinking],
    ["empty thinking", ["<th", "ink>", "\n\n", "</think>", "\n\n"]],
  ] as const)("leave out %s and its markers, shown or not", async ([, before]) => {
    for (const isShown of [true, false]) {
      expect(
        answerTokens(
          await parse(
            [...before, "Yes", "."].map((token) => [token]),
            isShown,
          ),
        ),
      ).toEqual(["Yes", "."]);
    }
  });

  test("have what turns out to be no marker", async () => {
    expect(answerTokens(await parse([["<th"], ["in"], [" ice"]]))).toEqual(["<th", "in", " ice"]);
    expect(answerTokens(await parse([["<th"], ["in"]]))).toEqual(["<th", "in"]);
  });

  test("do not put the end of a call before the text that follows", async () => {
    const parts = new AnswerParts();
    for (const generation of await parse([...call, "\n", "Yes", "."].map((token) => [token]))) parts.append(generation);
    expect(parts.parts.map(({ kind, logprobs }) => [kind, logprobs.map(({ sampled }) => sampled.token)])).toEqual([
      ["call", []],
      ["text", ["Yes", "."]],
    ]);
  });
});
