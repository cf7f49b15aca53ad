/** Markers that are special tokens: they reach parsers, and grammars can require them. */
import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";

import { createSamplingParams } from "../../../engine/contract/sampling-params.ts";
import { OutputConstraints } from "../../../engine/input/output-constraints.ts";
import { SequenceOutputs } from "../../../engine/output/output-processor.ts";
import { withTextTokens } from "../../../engine/text/added-tokens.ts";
import { parseTokenizer } from "../../../engine/text/tokenizer.ts";
import { allowedTokens, load } from "../structured-output/grammars.ts";

interface TokenizerFile {
  readonly added_tokens: readonly object[];
}

/** The shipped tokenizer with two more special tokens. */
const file = new URL("../../../models/fovea-shapes/tokenizer.json", import.meta.url);
const json = JSON.parse(await readFile(file, "utf8")) as TokenizerFile;
const special = { special: true, single_word: false, lstrip: false, rstrip: false, normalized: false };
const added = [
  { ...special, id: 598, content: "[TOOL_CALLS]" },
  { ...special, id: 599, content: "[THINK]" },
];
const tokenizer = parseTokenizer(JSON.stringify({ ...json, added_tokens: [...json.added_tokens, ...added] }), "{}");
const eosTokenId = tokenizer.tokenId("</s>")!;
const vocabSize = 600;

const structuredOutput = {
  kind: "structural",
  format: {
    type: "sequence",
    parts: [
      { type: "text", text: "[TOOL_CALLS]" },
      { type: "text", text: "go" },
    ],
  },
} as const;

test("a kept special token is one of the ways to write its text, only for requests that keep it", async () => {
  await using constraints = new OutputConstraints({ tokenizer, vocabSize, eosTokenIds: [eosTokenId] });
  const { signal } = new AbortController();
  const resolve = (keptSpecialTokens: readonly string[]) =>
    constraints.resolve(createSamplingParams({ structuredOutput, keptSpecialTokens }), signal);
  const kept = await resolve(["[TOOL_CALLS]", "</s>", "unknown"]);
  expect(kept.textTokenIds).toEqual([598]);
  const matcher = load(kept.grammar!)();
  expect(allowedTokens(matcher, vocabSize)).toContain(598);
  expect(matcher.accept(598)).toBe(true);
  expect(matcher.accept(tokenizer.tokenId("g")!)).toBe(true);
  const plain = await resolve([]);
  expect(plain.textTokenIds).toEqual([]);
  expect(allowedTokens(load(plain.grammar!)(), vocabSize)).not.toContain(598);
});

test("a kept special token is in the text although special tokens are skipped", () => {
  const textOf = (textTokenIds: readonly number[]): string => {
    const outputs = new SequenceOutputs({
      requestId: "a",
      index: 0,
      samplingParams: createSamplingParams({}),
      vocabulary: withTextTokens(tokenizer, textTokenIds),
      numPromptTokens: 1,
      numImageTokens: 0,
    });
    const tokenIds = [598, tokenizer.tokenId("g")!, 599];
    const ending = { finishReason: "length", stopReason: null, error: null, logprobs: null } as const;
    outputs.append({ requestId: "a", tokenIds, numCachedTokens: 0, ...ending });
    return outputs.take(null)!.text;
  };
  expect(textOf([598])).toBe("[TOOL_CALLS]g");
  expect(textOf([])).toBe("g");
});

test("the start of the thinking is on the first output only", () => {
  const outputs = new SequenceOutputs({
    requestId: "a",
    index: 0,
    samplingParams: createSamplingParams({}),
    vocabulary: tokenizer,
    reasoningStart: "inside",
    numPromptTokens: 1,
    numImageTokens: 0,
  });
  const step = { requestId: "a", tokenIds: [5], numCachedTokens: 0, stopReason: null, error: null, logprobs: null };
  outputs.append({ ...step, finishReason: null });
  expect(outputs.take(null)).toMatchObject({ reasoningStart: "inside" });
  outputs.append({ ...step, finishReason: "length" });
  expect(outputs.take(null)).not.toHaveProperty("reasoningStart");
});
