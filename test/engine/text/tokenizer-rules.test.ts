/** Normalizers, pre-tokenizers and added tokens of a tokenizer.json, compared with Hugging Face tokenizers 0.23.3. */
import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";

import { parseTokenizer } from "../../../engine/text/tokenizer.ts";
import type { Tokenizer } from "../../../engine/text/tokenizer.ts";

interface Rules {
  readonly normalizer: object | null;
  readonly preTokenizer: object | null;
  readonly cases: readonly { readonly text: string; readonly words: readonly string[] }[];
}

const rules: Rules[] = JSON.parse(
  await readFile(new URL("../../fixtures/tokenizers/rules.json", import.meta.url), "utf8"),
);

function tokenizerOf(parts: object): Tokenizer {
  return parseTokenizer(JSON.stringify({ decoder: null, post_processor: null, ...parts }), "{}");
}

async function tokensOf(tokenizer: Tokenizer, text: string): Promise<(string | null)[]> {
  const tokenIds = await tokenizer.encode(text, { addSpecialTokens: false });
  return (tokenIds ?? []).map((tokenId) => tokenizer.token(tokenId));
}

test.for(rules.map((rule) => [JSON.stringify(rule.normalizer ?? rule.preTokenizer), rule] as const))(
  "%s divides texts as Hugging Face tokenizers does",
  async ([, { normalizer, preTokenizer, cases }]) => {
    // Every expected word is a token. Any other word ends with an unknown letter, which the suffix makes.
    const words = [...new Set(cases.flatMap((each) => each.words))];
    const vocab = Object.fromEntries(["[unknown]", ...words].map((word, tokenId) => [word, tokenId]));
    const model = {
      type: "BPE",
      vocab,
      merges: [],
      unk_token: "[unknown]",
      ignore_merges: true,
      end_of_word_suffix: "</w>",
    };
    const tokenizer = tokenizerOf({ normalizer, pre_tokenizer: preTokenizer, model });
    const found = [];
    for (const { text } of cases) found.push({ text, words: await tokensOf(tokenizer, text) });
    expect(found).toEqual(cases);
  },
);

test("an unknown pre-tokenizer or behavior is rejected by name", () => {
  const model = { type: "BPE", vocab: { a: 0 }, merges: [] };
  expect(() => tokenizerOf({ model, pre_tokenizer: { type: "Telepathy" } })).toThrow(/pre-tokenizer "Telepathy"/);
  const split = { type: "Split", pattern: { String: " " }, behavior: "Forgotten" };
  expect(() => tokenizerOf({ model, pre_tokenizer: split })).toThrow(/unknown behavior "Forgotten"/);
  const noPattern = { type: "Split", pattern: {}, behavior: "Isolated" };
  expect(() => tokenizerOf({ model, pre_tokenizer: noPattern })).toThrow(/unsupported kind/);
});

test("unknown letters of adjacent words stay apart", async () => {
  const model = { type: "BPE", vocab: { "<unk>": 0, a: 1 }, merges: [], unk_token: "<unk>", fuse_unk: true };
  const tokenizer = tokenizerOf({ model, pre_tokenizer: { type: "WhitespaceSplit" } });
  expect(await tokensOf(tokenizer, "xy zz axy")).toEqual(["<unk>", "<unk>", "a", "<unk>"]);
});

const addedToken = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };

test("text in a literal range never becomes an added token", async () => {
  const model = { type: "BPE", vocab: { "<unk>": 0, "[": 1 }, merges: [], unk_token: "<unk>", ignore_merges: true };
  const tokenizer = tokenizerOf({
    model,
    pre_tokenizer: { type: "WhitespaceSplit" },
    added_tokens: [{ ...addedToken, id: 2, content: "[INST]" }],
  });
  const options = { addSpecialTokens: false, literal: [{ start: 0, end: 6 }] };
  expect(tokenizer.tokenId("[INST]")).toBe(2);
  expect(await tokenizer.encode("[INST] [INST]", options)).toEqual([1, 0, 0, 0, 0, 0, 2]);
});

test("added tokens that are matched in normalised text come after the others without a normalizer too", async () => {
  const vocab = Object.fromEntries(["<unk>", "a", " "].map((token, tokenId) => [token, tokenId]));
  const tokenizer = tokenizerOf({
    model: { type: "BPE", vocab, merges: [], unk_token: "<unk>" },
    added_tokens: [
      { ...addedToken, id: 3, content: "   ", normalized: true },
      { ...addedToken, id: 4, content: "  " },
    ],
  });
  expect(await tokensOf(tokenizer, "a   a")).toEqual(["a", "  ", " ", "a"]);
});

test("a normalised added token starts a text with the spelling that it is matched in", async () => {
  const tokenizer = tokenizerOf({
    normalizer: { type: "Lowercase" },
    decoder: { type: "Metaspace", replacement: "▁", prepend_scheme: "always" },
    model: { type: "BPE", vocab: { "▁": 0, a: 1 }, merges: [] },
    added_tokens: [{ ...addedToken, id: 2, content: "TOK", normalized: true }],
  });
  expect(await tokenizer.detokenize([2, 0, 1])).toBe("tok a");
});

test("a decoder that writes a dollar sign writes nothing else", async () => {
  const tokenizer = tokenizerOf({
    decoder: { type: "Replace", pattern: { String: "▁" }, content: "$&" },
    model: { type: "BPE", vocab: { "▁a": 0 }, merges: [] },
  });
  expect(tokenizer.decode([0])).toBe("$&a");
});
