import { describe, expect, test } from "vitest";

import type { StructuredOutput } from "../../../engine/structured-output/structured-output.ts";
import { LoadedGrammar } from "../../../engine/structured-output/xgrammar.ts";
import { withoutStateMerging } from "../../../engine/structured-output/xgrammar-repair.ts";
import { allowedTokens, compileOnce, shapesVocabulary } from "./grammars.ts";

const { tokenizer, vocabSize, eosTokenIds } = shapesVocabulary;

/** Whether a text may end after these characters, each a token of its own. */
function matches(grammar: LoadedGrammar, text: string): boolean {
  using matcher = grammar.createMatcher();
  for (const character of text) if (!matcher.accept(tokenizer.tokenId(character)!)) return false;
  return allowedTokens(matcher, vocabSize).includes(eosTokenIds[0]);
}

async function matching(output: StructuredOutput, texts: readonly string[]): Promise<string[]> {
  const { image, vocabulary } = await compileOnce(shapesVocabulary, output);
  const grammar = new LoadedGrammar(image, vocabulary);
  return texts.filter((text) => matches(grammar, text));
}

const everyNumber = Array.from({ length: 1200 }, (_, index) => String(index));
/** Seven apart, from 1000 down to 223. */
const numbers = Array.from({ length: 112 }, (_, index) => String(1000 - 7 * index));
const ascending = numbers.toReversed();

describe("of literals in a row", () => {
  const lists: [string, StructuredOutput][] = [
    ["a pattern", { kind: "regex", pattern: numbers.join("|") }],
    ["a grammar", { kind: "grammar", grammar: `root ::= ${numbers.map((text) => `"${text}"`).join(" | ")}` }],
    ["a pattern of a JSON string", schemaOf(numbers.join("|"))],
  ];

  test.for(lists)("%s matches those and no mixture of them", async ([, output]) => {
    const quoted = (text: string): string => (output.kind === "json-schema" ? `"${text}"` : text);
    expect(await matching(output, everyNumber.map(quoted))).toEqual(ascending.map(quoted));
  });
});

describe("a repetition in front of what it may take in as well", () => {
  const texts = ["cd", "acd", "zcd", "aacd", "cacd", "ad"];
  const cases: [string, StructuredOutput][] = [
    ["a pattern", { kind: "regex", pattern: "[a-z]*[a-z]cd" }],
    ["a grammar", { kind: "grammar", grammar: 'root ::= [a-z]* [a-z] "c" "d"' }],
  ];

  test.for(cases)("of %s cannot be left out with it", async ([, output]) => {
    expect(await matching(output, texts)).toEqual(["acd", "zcd", "aacd", "cacd"]);
  });
});

test("other code than that of the version is refused", () => {
  expect(() => withoutStateMerging(Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0))).toThrow("not that of version");
});

function schemaOf(pattern: string): StructuredOutput {
  return { kind: "json-schema", schema: JSON.stringify({ type: "string", pattern }) };
}
