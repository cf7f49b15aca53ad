/** Places of a prompt's tokens in its text, with the tokenizers of models. */
import { expect, test } from "vitest";

import { TextAlignment } from "../../../engine/output/text-alignment.ts";
import type { AlignedPrompt } from "../../../engine/output/text-alignment.ts";
import type { Tokenizer } from "../../../engine/text/tokenizer.ts";
import { fixtureFamilies, loadFixtureTokenizer, readCases } from "../text/fixture-tokenizer.ts";

/** The part of the text that each token stands for. */
function partsOf(prompt: AlignedPrompt, tokenizer: Tokenizer): string[] {
  const alignment = new TextAlignment(prompt, tokenizer);
  alignment.alignUntil(1);
  alignment.alignUntil(prompt.tokenIds.length);
  alignment.finish();
  return prompt.tokenIds.map((tokenId, index) => {
    const bytes = alignment.bytesOf(index) ?? tokenizer.tokenBytes(tokenId);
    // Latin-1 keeps parts of characters apart.
    return Buffer.from(bytes).toString("latin1");
  });
}

async function encodeBy(tokenizer: Tokenizer, text: string, addSpecialTokens = false): Promise<number[]> {
  return (await tokenizer.encode(text, { addSpecialTokens })) ?? [];
}

const latin1 = (text: string): string => Buffer.from(text).toString("latin1");

test.for(fixtureFamilies)("the parts of all tokens are the text: %s", async (family) => {
  const tokenizer = await loadFixtureTokenizer(family);
  for (const { text, ids, idsWithSpecial } of await readCases(family)) {
    for (const tokenIds of [ids, idsWithSpecial].filter(({ length }) => length > 0)) {
      expect(partsOf({ text, tokenIds, placeholders: [] }, tokenizer).join("")).toBe(latin1(text));
    }
  }
});

const examples: readonly (readonly [string, string, string, readonly string[]])[] = [
  ["a text without the space before it", "llama2-legacy", "The circle", ["", "The", " circle"]],
  ["a text with a space of its own", "llama2-legacy", " The circle", ["", " ", "The", " circle"]],
  ["texts after special tokens", "llama2-legacy", "The<|user|>The", ["", "The", "<|user|>", "The"]],
  ["a text of one piece", "llama2-metaspace", "The circle", ["", "The", " circle"]],
  ["white space that the tokenizer removes", "llama2-legacy", "The  <strip> The", ["", "The  ", "<strip>", " The"]],
];

test.for(examples)("the tokens of %s: %s", async ([, family, text, parts]) => {
  const tokenizer = await loadFixtureTokenizer(family as "llama2-legacy");
  const tokenIds = await encodeBy(tokenizer, text, true);
  expect(partsOf({ text, tokenIds, placeholders: [] }, tokenizer)).toEqual(parts.map(latin1));
});

test("the tokens of images stand for their placeholders, and all other tokens for their own text", async () => {
  const tokenizer = await loadFixtureTokenizer("llama2-legacy");
  const encode = async (text: string) => encodeBy(tokenizer, text);
  const image = tokenizer.tokenId("<image>")!;
  const [newline, the, circle] = [await encode("\n"), await encode("The"), await encode("\nThe circle")];
  // As for a model that writes line breaks around its images, next to those of the text.
  const item = [...newline, image, image, ...newline];
  const text = "The<image><image>\nThe circle<image>";
  const tokenIds = [...the, ...item, ...item, ...circle, ...item];
  const { length } = item;
  const last = the.length + 2 * length + circle.length;
  const placeholders = [the.length, the.length + length, last].map((offset) => ({ offset, length }));
  const parts = partsOf({ text, tokenIds, placeholders }, tokenizer);
  const withoutParts = Array.from({ length: length - 1 }, () => "");
  const whole = partsOf({ text: "\nThe circle", tokenIds: circle, placeholders: [] }, tokenizer);
  const standingFor = (part: string): string[] => [...withoutParts, part];
  const middle = [...standingFor(""), ...standingFor("<image><image>"), ...whole];
  expect(parts).toEqual(["The", ...middle, ...standingFor("<image>")]);
  // A text that was decoded from the tokens.
  const decoded = tokenizer.decode(tokenIds);
  expect(partsOf({ text: decoded, tokenIds, placeholders }, tokenizer).join("")).toBe(latin1(decoded));
});

test("tokens of a text that the tokenizer changes stand for the original", async () => {
  const tokenizer = await loadFixtureTokenizer("qwen2");
  const text = "caf\u0065\u0301 is closed";
  const parts = partsOf({ text, tokenIds: await encodeBy(tokenizer, text), placeholders: [] }, tokenizer);
  const ending = await encodeBy(tokenizer, " is closed");
  expect(parts.join("")).toBe(latin1(text));
  const own = ending.map((tokenId) => Buffer.from(tokenizer.tokenBytes(tokenId)).toString("latin1"));
  expect(parts.slice(-own.length)).toEqual(own);
});
