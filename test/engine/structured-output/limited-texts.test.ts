/** Strings that must match a pattern and have at most or at least some characters. */
import { expect, test } from "vitest";

import { bytesOf } from "../../../engine/structured-output/grammar-vocabulary.ts";
import { readPattern } from "../../../engine/structured-output/pattern-reader.ts";
import type { StructuredOutput } from "../../../engine/structured-output/structured-output.ts";
import { textLengths } from "../../../engine/structured-output/text-lengths.ts";
import { allowedTokens, compileOnce, createRandom, load, Reader, shapesVocabulary } from "./grammars.ts";
import { Sketcher } from "./sketches.ts";

function strings(keywords: object): StructuredOutput {
  return { kind: "json-schema", schema: JSON.stringify({ type: "string", ...keywords }) };
}

function limited(pattern: string, maxLength: number): StructuredOutput {
  return strings({ pattern: `^(?:${pattern})$`, maxLength });
}

/** A text of random bytes that the output allows, which ends as soon as it can with this probability. */
function wander(output: StructuredOutput, seed: number, ends: number): string {
  const random = createRandom(seed);
  const reader = new Reader(output);
  const bytes: number[] = [];
  for (let position = reader.start(); !position.canEnd || random() > ends;) {
    const nexts = Array.from({ length: 256 }, (_, byte) => ({ byte, next: reader.advance(position, [byte]) })).filter(
      ({ next }) => next !== null,
    );
    const chosen = nexts[Math.floor(random() * nexts.length)];
    if (chosen === undefined) {
      if (position.canEnd) break;
      throw new Error(`${JSON.stringify(output)} ends nowhere: ${Buffer.from(bytes).toString()}`);
    }
    bytes.push(chosen.byte);
    position = chosen.next!;
  }
  return Buffer.from(bytes).toString();
}

test("texts of random patterns are those that are short enough, and each can be ended", () => {
  let numShort = 0;
  let numLong = 0;
  for (let seed = 1; seed <= 150; seed++) {
    const { pattern } = new Sketcher(createRandom(seed)).sketchLanguage(3);
    const { min } = textLengths(readPattern(pattern));
    const maxLength = min + (seed % 4);
    const output = limited(pattern, maxLength);
    for (let walk = 1; walk <= 3; walk++) {
      const text = JSON.parse(wander(output, 10 * seed + walk, 0.3)) as string;
      expect(text).toMatch(new RegExp(`^(?:${pattern})$`, "u"));
      expect(Array.from(text).length).toBeLessThanOrEqual(maxLength);
      const other = wander({ kind: "regex", pattern }, 10 * seed + walk, 0.3);
      const isShort = Array.from(other).length <= maxLength;
      if (isShort) numShort++;
      else numLong++;
      expect([other, new Reader(output).judge(Buffer.from(JSON.stringify(other))) === "whole"]).toEqual([
        other,
        isShort,
      ]);
    }
  }
  expect(Math.min(numShort, numLong)).toBeGreaterThan(50);
});

test("texts of random patterns are those that are long and short enough, and each can be ended", () => {
  let numInside = 0;
  let numOutside = 0;
  for (let seed = 1; seed <= 150; seed++) {
    const { pattern } = new Sketcher(createRandom(seed)).sketchLanguage(3);
    const lengths = textLengths(readPattern(pattern));
    const minLength = Math.min(lengths.min + 1 + (seed % 5), lengths.max);
    const maxLength = seed % 2 === 0 ? minLength + 6 : undefined;
    const output = strings({ pattern: `^(?:${pattern})$`, minLength, maxLength });
    for (let walk = 1; walk <= 3; walk++) {
      const text = JSON.parse(wander(output, 10 * seed + walk, 0.3)) as string;
      expect(text).toMatch(new RegExp(`^(?:${pattern})$`, "u"));
      expect(Array.from(text).length).toBeGreaterThanOrEqual(minLength);
      expect(Array.from(text).length).toBeLessThanOrEqual(maxLength ?? Infinity);
      const other = wander({ kind: "regex", pattern }, 10 * seed + walk, 0.1);
      const { length } = Array.from(other);
      const isInside = length >= minLength && length <= (maxLength ?? Infinity);
      if (isInside) numInside++;
      else numOutside++;
      const judged = new Reader(output).judge(Buffer.from(JSON.stringify(other)));
      expect([other, judged === "whole"]).toEqual([other, isInside]);
    }
  }
  expect(Math.min(numInside, numOutside)).toBeGreaterThan(50);
});

test.for<[string, readonly string[], readonly string[]]>([
  ["q", ["q", "a quiet place", "aq\n", "qq"], ["", "Q", "a"]],
  ["^https?://", ["https://a.b/c", "http://"], [" https://a", "https:/a"]],
  ["[0-9]$", ["a0", "0", "9\n1"], ["1a", ""]],
  ["^$|^ab|b$|-", ["", "abc", "ab", "cab", "x-y", "b"], ["a", "ba"]],
  ["(^a|b)(c|d$)", ["ac", "acx", "xbcx", "bd", "ad"], ["xac", "adx", "bdx", "a"]],
  ["^(?:a|b$)", ["a", "abc", "b"], ["bc", "ca"]],
  ['"', ['"', 'a"\\b', '\u0001"😀'], ["a", "\\"]],
])("a pattern matches anywhere in a string: %s", ([pattern, matching, others]) => {
  const reader = new Reader(strings({ pattern }));
  for (const text of [...matching, ...others]) {
    const isMatch = new RegExp(pattern, "u").test(text);
    expect([text, isMatch]).toEqual([text, matching.includes(text)]);
    expect([text, reader.judge(Buffer.from(JSON.stringify(text))) === "whole"]).toEqual([text, isMatch]);
  }
});

test.for<[string, number]>([
  ["[a-z]+(-[a-z]+)*", 20],
  ["((ab)+c)?d*", 9],
  ["(c?a){40}", 43],
  ["(a{30}|b)*", 35],
  ["x(yz{10,20})*", 40],
  ['("|é|\\n)*!', 12],
])("masks of %s with at most %i characters are exact", async ([pattern, maxLength]) => {
  const { vocabSize } = shapesVocabulary;
  const output = limited(pattern, maxLength);
  const grammar = await compileOnce(shapesVocabulary, output);
  const createMatcher = load(grammar);
  const reader = new Reader(output);
  const tokens = Array.from({ length: vocabSize }, (_, id) => bytesOf(grammar.vocabulary, id));
  for (let seed = 1; seed <= 4; seed++) {
    const matcher = createMatcher();
    const random = createRandom(seed);
    let position = reader.start();
    while (!position.canEnd) {
      const allowed = allowedTokens(matcher, vocabSize);
      const isPossible = (bytes: Uint8Array): boolean => bytes.length > 0 && reader.advance(position, bytes) !== null;
      expect(allowed).toEqual([...tokens.keys()].filter((id) => isPossible(tokens[id]!)));
      const chosen = allowed[Math.floor(random() * allowed.length)]!;
      expect(matcher.accept(chosen)).toBe(true);
      position = reader.advance(position, tokens[chosen]!)!;
    }
  }
});
