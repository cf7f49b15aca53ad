import { afterAll, describe, expect, test } from "vitest";

import { createSamplingParams } from "../../../engine/contract/sampling-params.ts";
import type { SamplingParams } from "../../../engine/contract/sampling-params.ts";
import { OutputConstraints } from "../../../engine/input/output-constraints.ts";
import { loadFixtureTokenizer } from "../text/fixture-tokenizer.ts";

const tokenizer = await loadFixtureTokenizer("gpt2");
const vocabSize = 900;
const constraints = new OutputConstraints({
  tokenizer,
  vocabSize,
  eosTokenIds: [tokenizer.tokenId("</s>") as number],
});
const never = new AbortController().signal;

afterAll(() => constraints[Symbol.asyncDispose]());

function resolve(params: Partial<SamplingParams>) {
  return constraints.resolve(createSamplingParams(params), never);
}

async function encode(text: string): Promise<number[]> {
  return (await tokenizer.encode(text, { addSpecialTokens: false })) as number[];
}

describe("token ids outside the vocabulary", () => {
  const cases: [Partial<SamplingParams>, keyof SamplingParams, string][] = [
    [
      { logitBias: { 5: 1, 900: 2, "-1": 3 } },
      "logitBias",
      "token_id(s) [900, -1] in logitBias contain out-of-vocab token ids. Vocabulary size: 900.",
    ],
    [
      { allowedTokenIds: [0, 899, 1000] },
      "allowedTokenIds",
      "allowedTokenIds contains out-of-vocab token id(s) [1000]. Vocabulary size: 900.",
    ],
  ];

  test.for(cases)("in %o are rejected by name", ([params, field, message]) => {
    expect(() => constraints.check(createSamplingParams(params))).toThrow(
      expect.objectContaining({ code: "invalid_argument", message, parameter: `samplingParams.${field}` }),
    );
  });

  test("inside the vocabulary are accepted", () => {
    expect(constraints.check(createSamplingParams({ logitBias: { 0: 1, 899: -1 }, allowedTokenIds: [899] }))).toBe(
      undefined,
    );
  });
});

describe("bad words", () => {
  test("of every request are those that the checkpoint suppresses", async () => {
    await using suppressing = new OutputConstraints({
      tokenizer,
      vocabSize,
      eosTokenIds: [],
      suppressedTokenIds: [7, 9],
      suppressedSequences: [[3, 4]],
      beginSuppressedTokenIds: [6],
    });
    const [plain, more] = await Promise.all(
      [{}, { badWords: ["zq"] }].map((params) => suppressing.resolve(createSamplingParams(params), never)),
    );
    expect(plain).toMatchObject({ badWordsTokenIds: [[7], [9], [3, 4]], beginSuppressedTokenIds: [6] });
    expect(more?.badWordsTokenIds.slice(0, 4)).toEqual([[7], [9], [3, 4], await encode("zq")]);
  });

  test("are tokenized as at the start of a text and, if that takes as many tokens, after a space", async () => {
    const words = ["red", "circle", "a red circle", "zq"];
    const { badWordsTokenIds } = await resolve({ badWords: words });
    const expected: number[][] = [];
    for (const word of words) {
      const [plain, spaced] = [await encode(word), await encode(` ${word}`)];
      expected.push(plain);
      if (spaced[0] !== plain[0] && spaced.length === plain.length) expected.push(spaced);
    }
    expect(badWordsTokenIds).toEqual(expected);
    expect(badWordsTokenIds.length).toBeGreaterThan(words.length);
  });

  test("lose their leading spaces", async () => {
    expect((await resolve({ badWords: ["  red"] })).badWordsTokenIds).toEqual(
      (await resolve({ badWords: ["red"] })).badWordsTokenIds,
    );
  });

  test("of an aborted request are abandoned", async () => {
    const params = createSamplingParams({ badWords: Array.from({ length: 500 }, (_, index) => `word ${index}`) });
    await expect(constraints.resolve(params, AbortSignal.abort(new Error("gone")))).rejects.toThrow("gone");
  });

  test("with tokens that the model lacks are rejected", async () => {
    const small = new OutputConstraints({ tokenizer, vocabSize: 3, eosTokenIds: [] });
    await expect(small.resolve(createSamplingParams({ badWords: ["red"] }), never)).rejects.toThrow(
      /^badWords contains words with token ids \[\d+.*\] that the model does not have. Vocabulary size: 3\.$/,
    );
  });
});

test("special tokens at the start of a marker of thinking are text, like markers that are special tokens", async () => {
  const reasoning = { start: "<|user|>thought", end: "<|assistant|>", startsInside: false, tokenBudget: null };
  const { textTokenIds } = await resolve({ reasoning, keptSpecialTokens: ["<image>"] });
  expect(textTokenIds).toEqual(["<image>", "<|user|>", "<|assistant|>"].map((text) => tokenizer.tokenId(text)));
});

describe("a structured output", () => {
  test("is compiled, and null if absent", async () => {
    const structuredOutput = { kind: "choice", choices: ["red", "green"] } as const;
    expect(await resolve({ structuredOutput })).toMatchObject({ grammar: { id: expect.any(String) } });
    expect(await resolve({})).toEqual({ badWordsTokenIds: [], textTokenIds: [], grammar: null });
  });

  test("that cannot be compiled is the caller's error", async () => {
    await expect(resolve({ structuredOutput: { kind: "regex", pattern: "(" } })).rejects.toMatchObject({
      code: "invalid_argument",
      parameter: "samplingParams.structuredOutput",
    });
  });
});
