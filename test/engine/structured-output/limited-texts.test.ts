/** Strings that must match a pattern and have at most some characters. */
import { expect, test } from "vitest";

import { bytesOf } from "../../../engine/structured-output/grammar-vocabulary.ts";
import { readPattern } from "../../../engine/structured-output/pattern-reader.ts";
import type { StructuredOutput } from "../../../engine/structured-output/structured-output.ts";
import { textLengths } from "../../../engine/structured-output/text-lengths.ts";
import { allowedTokens, compileOnce, createRandom, load, Reader, shapesVocabulary } from "./grammars.ts";
import { Sketcher } from "./sketches.ts";

function limited(pattern: string, maxLength: number): StructuredOutput {
  return { kind: "json-schema", schema: JSON.stringify({ type: "string", pattern, maxLength }) };
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
