import { expect, test } from "vitest";

import { compileProgram } from "../../../engine/structured-output/compiled-grammar.ts";
import type { CompiledGrammar } from "../../../engine/structured-output/compiled-grammar.ts";
import { readGrammar } from "../../../engine/structured-output/grammar-reader.ts";
import { bytesOf, createGrammarVocabulary } from "../../../engine/structured-output/grammar-vocabulary.ts";
import { findEndlessRule } from "../../../engine/structured-output/rule-properties.ts";
import type { StructuredOutput } from "../../../engine/structured-output/structured-output.ts";
import { Reader, allowedTokens, createRandom, load, shapesVocabulary, walk } from "./grammars.ts";
import type { TokenMatcher } from "./grammars.ts";
import { Sketcher } from "./sketches.ts";

const { tokenizer, vocabSize, eosTokenIds } = shapesVocabulary;
const vocabulary = await createGrammarVocabulary(tokenizer, vocabSize, eosTokenIds);
const numWalks = 6;
const utf8 = new TextDecoder("utf-8", { fatal: true });

function compile(output: StructuredOutput): CompiledGrammar {
  return { id: "test", description: JSON.stringify(output), program: compileProgram(output), vocabulary };
}

function textsOf(grammar: CompiledGrammar, createMatcher: () => TokenMatcher): string[] {
  const walks = walk(grammar, shapesVocabulary, numWalks, { skipsLong: true, createMatcher });
  return Array.from(walks, (bytes) => utf8.decode(bytes));
}

/** Follows a text in the tokenizer's tokens; throws if the mask lacks the next one. */
async function follow(createMatcher: () => TokenMatcher, text: string): Promise<void> {
  const tokenIds = (await tokenizer.encode(text, { addSpecialTokens: false }))!;
  const matcher = createMatcher();
  for (const tokenId of [...tokenIds, eosTokenIds[0]]) {
    if (!allowedTokens(matcher, vocabSize).includes(tokenId!)) throw new Error(`${text} cannot be reached: ${tokenId}`);
    if (!matcher.accept(tokenId!)) throw new Error(`${text}: token ${tokenId} is allowed and not accepted.`);
  }
}

async function followAll(createMatcher: () => TokenMatcher, texts: readonly string[]): Promise<void> {
  for (const text of texts) await follow(createMatcher, text);
}

const wordKinds: [string, (words: readonly string[]) => StructuredOutput][] = [
  ["choice", (choices) => ({ kind: "choice", choices })],
  ["pattern", (words) => ({ kind: "regex", pattern: words.join("|") })],
  ["grammar", (words) => ({ kind: "grammar", grammar: `root ::= ${words.map((word) => `"${word}"`).join(" | ")}` })],
  ["schema's enum", (words) => ({ kind: "json-schema", schema: JSON.stringify({ enum: words }) })],
  [
    "schema's pattern",
    (words) => ({ kind: "json-schema", schema: JSON.stringify({ type: "string", pattern: words.join("|") }) }),
  ],
];

test.for(wordKinds)("exactly the random words in a %s are reached", async ([, toOutput]) => {
  const sketcher = new Sketcher(createRandom(7));
  for (let round = 0; round < 12; round++) {
    const words = sketcher.words(120);
    const output = toOutput(words);
    const texts = words.map((word) => (output.kind === "json-schema" ? JSON.stringify(word) : word));
    const grammar = compile(output);
    const createMatcher = load(grammar);
    expect(textsOf(grammar, createMatcher).filter((text) => !texts.includes(text))).toEqual([]);
    await followAll(createMatcher, texts.slice(0, 20));
  }
});

test.for(["regex", "grammar"] as const)(
  "texts of random %s languages are exactly those that RegExp matches",
  async (kind) => {
    const sketcher = new Sketcher(createRandom(11));
    let numTexts = 0;
    for (let round = 0; round < 40; round++) {
      const { pattern, grammar, sample } = sketcher.sketchLanguage(3);
      const expression = new RegExp(`^(?:${pattern})$`, "u");
      const compiled = compile(kind === "regex" ? { kind, pattern } : { kind, grammar });
      const createMatcher = load(compiled);
      const texts = textsOf(compiled, createMatcher);
      numTexts += texts.length;
      for (const text of texts) expect(text, `${pattern}\n${grammar}`).toMatch(expression);
      await followAll(createMatcher, Array.from({ length: 6 }, sample));
    }
    expect(numTexts).toBeGreaterThan(120);
  },
);

test("masks of random recursive grammars allow exactly what the recognizer allows", () => {
  const sketcher = new Sketcher(createRandom(17));
  for (let round = 0; round < 25; round++) {
    let grammar = sketcher.recursiveGrammar();
    while (findEndlessRule(readGrammar(grammar)) !== null) grammar = sketcher.recursiveGrammar();
    const compiled = compile({ kind: "grammar", grammar });
    const reader = new Reader({ kind: "grammar", grammar });
    const createMatcher = load(compiled);
    for (const text of ["", "a", "b", "ca", "ab", "aba", "bbb", "acab"]) {
      const matcher = createMatcher();
      const isBegun = Array.from(text, (letter) => matcher.accept(tokenizer.tokenId(letter)!)).every(Boolean);
      const begun = reader.advance(reader.start(), Buffer.from(text));
      expect(isBegun, `${grammar}\n${text}`).toBe(begun !== null);
      if (begun === null) continue;
      const expected = Array.from({ length: vocabSize }, (_, tokenId) => tokenId).filter((tokenId) => {
        if (eosTokenIds.includes(tokenId)) return begun.canEnd;
        const bytes = bytesOf(vocabulary, tokenId);
        return bytes.length > 0 && reader.advance(begun, bytes) !== null;
      });
      expect(allowedTokens(matcher, vocabSize), `${grammar}\n${text}`).toEqual(expected);
    }
  }
});

test("texts match random schemas, and every value of the schema is reached", async () => {
  const sketcher = new Sketcher(createRandom(13));
  for (let round = 0; round < 16; round++) {
    const { schema, sample, accepts } = sketchSchema(sketcher, 2);
    const grammar = compile({ kind: "json-schema", schema: JSON.stringify(schema) });
    const createMatcher = load(grammar);
    for (const text of textsOf(grammar, createMatcher)) {
      expect(accepts(JSON.parse(text)), `${text} for ${JSON.stringify(schema)}`).toBe(true);
    }
    await followAll(
      createMatcher,
      Array.from({ length: 4 }, () => JSON.stringify(sample())),
    );
  }
});

interface SchemaSketch {
  readonly schema: object;
  readonly sample: () => unknown;
  readonly accepts: (value: unknown) => boolean;
}

/** Nested objects, with constants, numbers and words at the bottom. */
function sketchSchema(sketcher: Sketcher, depth: number): SchemaSketch {
  const kind = depth === 0 ? sketcher.pick(["words", "range", "pattern"]) : sketcher.pick(["object", "list", "words"]);
  switch (kind) {
    case "words": {
      const words = sketcher.words(40);
      return { schema: { enum: words }, sample: () => sketcher.pick(words), accepts: isOneOf(words) };
    }
    case "range": {
      const [minimum, maximum] = [-sketcher.pick([3, 12, 105]), sketcher.pick([0, 9, 99, 1003])];
      const values = Array.from({ length: maximum - minimum + 1 }, (_, index) => minimum + index);
      const schema = { type: "integer", minimum, maximum };
      return { schema, sample: () => sketcher.pick(values), accepts: isOneOf(values) };
    }
    case "pattern": {
      const words = sketcher.words(12);
      return {
        schema: { type: "string", pattern: `^(?:${words.join("|")})$` },
        sample: () => sketcher.pick(words),
        accepts: isOneOf(words),
      };
    }
    case "list": {
      const items = sketchSchema(sketcher, depth - 1);
      return {
        schema: { type: "array", items: items.schema, minItems: 1, maxItems: 3 },
        sample: () => Array.from({ length: sketcher.pick([1, 2, 3]) }, items.sample),
        accepts: (value) =>
          Array.isArray(value) && value.length >= 1 && value.length <= 3 && value.every(items.accepts),
      };
    }
    default: {
      // Names with a common beginning.
      const names = sketcher.words(5);
      const entries = names.map((name) => [name, sketchSchema(sketcher, depth - 1)] as const);
      const [required, ...optional] = entries;
      return {
        schema: {
          type: "object",
          properties: Object.fromEntries(entries.map(([name, { schema }]) => [name, schema])),
          required: [required![0]],
          additionalProperties: false,
        },
        sample: () => {
          const present = [required!, ...optional.filter(() => sketcher.pick([true, false]))];
          return Object.fromEntries(present.map(([name, { sample }]) => [name, sample()]));
        },
        accepts: (value) =>
          typeof value === "object" &&
          value !== null &&
          required![0] in value &&
          Object.entries(value).every(([name, inner]) =>
            entries.some(([known, { accepts }]) => known === name && accepts(inner)),
          ),
      };
    }
  }
}

function isOneOf(values: readonly unknown[]): (value: unknown) => boolean {
  return (value) => values.includes(value);
}
