import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { IncrementalDetokenizer } from "../../../engine/text/token-bytes.ts";
import type { Tokenizer } from "../../../engine/text/tokenizer.ts";
import { fixtureFamilies, loadFixtureTokenizer, readCases } from "./fixture-tokenizer.ts";

function decode(tokenizer: Tokenizer, tokenIds: readonly number[], skipSpecialTokens = true): string[] {
  const detokenizer = new IncrementalDetokenizer(tokenizer, { skipSpecialTokens });
  const pieces = tokenIds.map((tokenId) => detokenizer.append(tokenId));
  return [...pieces, detokenizer.finish()];
}

describe.for(fixtureFamilies)("%s", (family) => {
  test("text decoded token by token equals the text that Hugging Face decodes at once", async () => {
    const tokenizer = await loadFixtureTokenizer(family);
    for (const { ids, decoded } of await readCases(family)) {
      const text = decode(tokenizer, ids).join("");
      // A Llama decoder drops the space at the start of a whole text, but an output follows its prompt.
      const isLlama = family.startsWith("llama2") && text.startsWith(" ");
      expect(isLlama ? text.slice(1) : text).toBe(decoded);
    }
  });

  test("no piece ever contains half a character", async () => {
    const tokenizer = await loadFixtureTokenizer(family);
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: "grapheme", maxLength: 30 }), async (text) => {
        fc.pre(!text.includes("\uFFFD"));
        const tokenIds = await tokenizer.encode(text, { addSpecialTokens: false });
        const pieces = decode(tokenizer, tokenIds ?? [], false);
        expect(pieces.join("")).not.toContain("\uFFFD");
        for (const piece of pieces) expect(piece.isWellFormed()).toBe(true);
      }),
      { numRuns: 200 },
    );
  });
});

test("invalid UTF-8 becomes replacement characters, an unfinished character only at the end", async () => {
  const tokenizer = await loadFixtureTokenizer("llama2-legacy");
  const ids = ["<0xE2>", "<0x82>", "▁the", "<0xE2>", "<0x82>"].map((token) => tokenizer.tokenId(token) as number);
  expect(decode(tokenizer, ids)).toEqual(["", "", "\uFFFD the", "", "", "\uFFFD"]);
});

test("special tokens are text if they are not skipped", async () => {
  const tokenizer = await loadFixtureTokenizer("qwen2");
  const tokenIds = await tokenizer.encode("<s>é</s>", { addSpecialTokens: false });
  expect(decode(tokenizer, tokenIds ?? [], false).join("")).toBe("<s>é</s>");
  expect(decode(tokenizer, tokenIds ?? [], true).join("")).toBe("é");
});

test("an id beyond the vocabulary adds nothing", async () => {
  const tokenizer = await loadFixtureTokenizer("gpt2");
  expect(decode(tokenizer, [99_999]).join("")).toBe("");
});
