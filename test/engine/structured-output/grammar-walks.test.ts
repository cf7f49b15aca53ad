import { Ajv2020 } from "ajv/dist/2020.js";
import { afterAll, describe, expect, test } from "vitest";

import type { StructuredOutput } from "../../../engine/structured-output/structured-output.ts";
import {
  allowedTokens,
  byteFallbackVocabulary,
  compileOnce,
  createTestCompiler,
  llamaVocabulary,
  load,
  shapesVocabulary,
  walk,
} from "./grammars.ts";
import type { TestVocabulary } from "./grammars.ts";

const numWalks = 200;
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const vocabularies: [string, TestVocabulary][] = [
  ["byte-level tokens", shapesVocabulary],
  ["byte-level tokens and unused columns", llamaVocabulary],
  ["SentencePiece tokens with byte fallback", byteFallbackVocabulary],
];

const text = { type: "string" };
const schemas: [string, object][] = [
  [
    "required and optional properties",
    { type: "object", properties: { name: text, age: { type: "integer" } }, required: ["age"] },
  ],
  [
    "nested lists of bounded length",
    {
      type: "object",
      properties: {
        objects: {
          type: "array",
          minItems: 1,
          maxItems: 3,
          items: {
            type: "object",
            properties: {
              shape: { enum: ["circle", "square", 'a "quoted" é 😀'] },
              box: { type: "array", items: { type: "integer", minimum: 0, maximum: 640 }, minItems: 4, maxItems: 4 },
              isLarge: { type: ["boolean", "null"] },
            },
            required: ["shape", "box"],
            additionalProperties: false,
          },
        },
      },
      required: ["objects"],
    },
  ],
  [
    "strings of bounded length",
    { type: "object", properties: { a: { type: "string", minLength: 2, maxLength: 5 } }, required: ["a"] },
  ],
  [
    "patterns",
    { type: "object", properties: { code: { type: "string", pattern: "^[A-Z]{2}-[0-9]{3}$" } }, required: ["code"] },
  ],
  [
    "numbers in a range",
    { type: "array", items: { type: "integer", minimum: -5, maximum: 120 }, minItems: 2, maxItems: 5 },
  ],
  [
    "anyOf and constants",
    { anyOf: [{ const: 17 }, { type: "array", items: { type: "boolean" }, maxItems: 3 }, { const: "é\n" }] },
  ],
  [
    "a recursive definition",
    {
      $ref: "#/$defs/node",
      $defs: {
        node: {
          type: "object",
          properties: { value: { type: "number" }, children: { type: "array", items: { $ref: "#/$defs/node" } } },
          required: ["value", "children"],
          additionalProperties: false,
        },
      },
    },
  ],
  [
    "properties by pattern",
    { type: "object", patternProperties: { "^x_[a-z]{1,3}$": { type: "integer" } }, additionalProperties: false },
  ],
  ["values that begin alike", { enum: Array.from({ length: 112 }, (_, index) => `a${index + 17}`) }],
  [
    "constants that begin alike",
    { anyOf: Array.from({ length: 112 }, (_, index) => ({ const: -17 - index })), $defs: { unused: { enum: [1, 2] } } },
  ],
  ["natural numbers", { type: "array", items: { type: "integer", exclusiveMinimum: 16 }, maxItems: 5 }],
  [
    "negative numbers",
    { type: "array", items: { type: "integer", minimum: -128.5, exclusiveMaximum: -16 }, maxItems: 5 },
  ],
  [
    "names and constants past ASCII, before letters that could be digits",
    {
      type: "object",
      properties: { éa: { const: "àb" }, '\u0001c"\\': { type: "string", pattern: "^(yes|no|éa)$" } },
      required: ["éa", '\u0001c"\\'],
      additionalProperties: false,
    },
  ],
  [
    "ranges of numbers",
    {
      type: "array",
      prefixItems: [
        { type: "number", minimum: 0, maximum: 1 },
        { type: "number", exclusiveMinimum: -20, exclusiveMaximum: 0 },
        { type: "integer", minimum: -40, maximum: 98765 },
        { type: "integer", maximum: 7 },
      ],
      items: { type: "number", exclusiveMinimum: 99 },
      minItems: 5,
      maxItems: 6,
    },
  ],
  [
    "multiples",
    {
      type: "array",
      prefixItems: [
        { type: "integer", multipleOf: 64, minimum: 64, maximum: 4096 },
        { type: "number", multipleOf: 0.25, exclusiveMinimum: -3, maximum: 40 },
        { allOf: [{ type: "integer", multipleOf: 4 }, { multipleOf: 6 }] },
        { type: "number", multipleOf: 500 },
      ],
      minItems: 4,
      items: false,
    },
  ],
  ["properties that are required and not described", { type: "object", properties: { a: text }, required: ["a", "b"] }],
  ["objects of which only names are known", { type: "object", required: ["a"] }],
  [
    "names and values of a form",
    { type: "object", propertyNames: { pattern: "^[a-c]{1,3}$" }, additionalProperties: { type: "boolean" } },
  ],
  ["lengths without a type", { maxLength: 3 }],
  [
    "names of bounded length and values of a form",
    { type: "object", propertyNames: { maxLength: 3 }, additionalProperties: { type: "boolean" } },
  ],
  ["patterns that need escapes", { type: "string", pattern: '^"[^a]{1,3}\\\\$' }],
  [
    "a number of properties",
    {
      type: "object",
      properties: { a: { type: "null" }, b: { type: "null" }, c: { type: "null" } },
      additionalProperties: { type: "null" },
      minProperties: 2,
      maxProperties: 4,
    },
  ],
  ["any object with a number of properties", { type: "object", minProperties: 1, maxProperties: 2 }],
  ["any items, several", { type: "array", minItems: 1, maxItems: 3 }],
  [
    "properties of a form beside those of others",
    {
      type: "object",
      properties: { a: { type: "null" }, 'é"b': { type: "null" } },
      additionalProperties: { type: "integer" },
    },
  ],
  [
    "properties by name beside those by pattern",
    {
      type: "object",
      properties: { a: { type: "null" } },
      patternProperties: { "^x_[a-z]{1,3}$": { type: "integer" } },
      required: ["a"],
      additionalProperties: false,
    },
  ],
  ["names of a list", { type: "object", propertyNames: { enum: ["a", "é", 1] }, maxProperties: 3 }],
  ["counts without a type", { minItems: 1, maxProperties: 2 }],
  ["types in turn", { type: ["integer", "string"], maxLength: 4 }],
  [
    "conditions",
    {
      type: "object",
      properties: { kind: { enum: ["a", "b", "c"] }, size: { type: "integer", not: { enum: [3, 5] } }, name: text },
      required: ["kind"],
      if: { properties: { kind: { const: "a" } } },
      // oxlint-disable-next-line unicorn/no-thenable -- A keyword of JSON Schema.
      then: { required: ["size"] },
      else: { not: { required: ["size"] } },
      dependentRequired: { size: ["name"] },
    },
  ],
  [
    "different items",
    { type: "array", uniqueItems: true, minItems: 2, items: { enum: ["a", "b", "ab", null, 1, 12] } },
  ],
  ["strings other than some", { type: "string", not: { enum: ["a", "ab", "é"] } }],
  ["references with escapes", { $ref: "#/$defs/a~1b", $defs: { "a/b": { type: "boolean" } } }],
  ["anything", {}],
];

const patterns = [
  String.raw`\d{4}-\d{2}-\d{2}`,
  "(yes|no|maybe)( sir| madam)?",
  "[^x]{1,6}",
  "^[a-c]+?(é|中|😀)*$",
  String.raw`(?:\+|-)?\w+@[\w.]{1,5}\.(com|org)`,
  ".",
  String.raw`a\.b\\c\"\t?`,
  "[a-zà-üß]{2,3}",
  String.raw`\S\D\W`,
  String.raw`[\x01-\x1fab]{1,3}\x41b`,
  "[一-龥]{1,4}[^é]",
];

describe.for(vocabularies)("with %s", ([, vocabulary]) => {
  const compiler = createTestCompiler(vocabulary);
  afterAll(() => compiler[Symbol.asyncDispose]());

  test.for(schemas)("every random JSON text fits a schema of %s", async ([, schema]) => {
    const isValid = new Ajv2020({ strict: false }).compile(schema);
    const grammar = await compiler.compile({ kind: "json-schema", schema: JSON.stringify(schema) });
    for (const bytes of walk(grammar, vocabulary, numWalks)) {
      const json = utf8.decode(bytes);
      expect(isValid(JSON.parse(json)), `${json}: ${JSON.stringify(isValid.errors)}`).toBe(true);
    }
  });

  test("every random JSON object parses, as an object", async () => {
    const grammar = await compiler.compile({ kind: "json-object" });
    for (const bytes of walk(grammar, vocabulary, numWalks)) {
      const json = utf8.decode(bytes);
      expect(json.trimStart()).toMatch(/^\{/);
      expect(JSON.parse(json)).toBeTypeOf("object");
    }
  });

  test.for(patterns)("every random text matches the pattern %s", async (pattern) => {
    const expression = new RegExp(`^(?:${pattern.replace('\\"', '"')})$`, "u");
    const grammar = await compiler.compile({ kind: "regex", pattern });
    for (const bytes of walk(grammar, vocabulary, numWalks)) expect(utf8.decode(bytes)).toMatch(expression);
  });

  test("exactly the listed choices are reached", async () => {
    const choices = ["yes", "no", "yesterday", 'say "no"', "back\\slash", "two\nlines", "\u0001\t", "é 中 😀", " "];
    const grammar = await compiler.compile({ kind: "choice", choices });
    const reached = new Set(Array.from(walk(grammar, vocabulary, numWalks), (bytes) => utf8.decode(bytes)));
    expect([...reached].sort()).toEqual(choices.toSorted());
  });

  test("choices with a common beginning are not mixed up", async () => {
    const choices = Array.from({ length: 112 }, (_, index) => `a${index + 17}`);
    const grammar = await compiler.compile({ kind: "choice", choices });
    const reached = Array.from(walk(grammar, vocabulary, numWalks), (bytes) => utf8.decode(bytes));
    expect(reached.filter((text) => !choices.includes(text))).toEqual([]);
  });

  test("every random text is a sentence of the grammar", async () => {
    const grammar = await compiler.compile({
      kind: "grammar",
      grammar: 'root ::= sum\nsum ::= term ("+" term){0,3}\nterm ::= [0-9]{1,3} | "(" sum ")"',
    });
    for (const bytes of walk(grammar, vocabulary, numWalks)) {
      expect(utf8.decode(bytes)).toMatch(/^[0-9+()]+$/);
      // oxlint-disable-next-line no-implied-eval, no-new-func -- only digits, plus signs and parentheses
      expect(new Function(`return ${utf8.decode(bytes).replaceAll(/\b0+(?=\d)/g, "")}`)()).toBeTypeOf("number");
    }
  });
});

/** Where the number of UTF-8 bytes changes, or the bytes that can follow the first. */
const boundaryCodePoints = [
  0x00, 0x7f, 0x80, 0x7ff, 0x800, 0xfff, 0x1000, 0xcfff, 0xd7ff, 0xe000, 0xffff, 0x10000, 0x3ffff, 0x40000, 0xfffff,
  0x100000, 0x10ffff,
];
const invalidSequences: [string, number[]][] = [
  ["a continuation alone", [0x80]],
  ["an overlong form of two bytes", [0xc0, 0x80]],
  ["an overlong form of three bytes", [0xe0, 0x80, 0x80]],
  ["an overlong form of four bytes", [0xf0, 0x80, 0x80, 0x80]],
  ["a surrogate", [0xed, 0xa0, 0x80]],
  ["a code point past the last", [0xf4, 0x90, 0x80, 0x80]],
  ["a byte that never begins a character", [0xff]],
  ["a character cut short", [0xe4, 0xb8, 0x22]],
];

/** Ids of the tokens that are one byte each. */
function byteTokens({ tokenizer, vocabSize }: TestVocabulary): Map<number, number> {
  const ids = new Map<number, number>();
  for (let id = 0; id < vocabSize; id++) {
    const bytes = tokenizer.tokenBytes(id);
    if (bytes.length === 1 && !tokenizer.isSpecial(id)) ids.set(bytes[0]!, id);
  }
  return ids;
}

describe("byte by byte", () => {
  const tokens = byteTokens(shapesVocabulary);
  const oneCharacter: StructuredOutput = { kind: "grammar", grammar: String.raw`root ::= [\0-\U0010FFFF]` };

  test("every boundary of UTF-8 is accepted", async () => {
    const createMatcher = load(await compileOnce(shapesVocabulary, oneCharacter));
    for (const codePoint of boundaryCodePoints) {
      const character = String.fromCodePoint(codePoint);
      const matcher = createMatcher();
      const accepted = Array.from(Buffer.from(character), (byte) => matcher.accept(tokens.get(byte)!));
      expect(accepted, `U+${codePoint.toString(16)}`).not.toContain(false);
      expect(allowedTokens(matcher, shapesVocabulary.vocabSize)).toEqual(shapesVocabulary.eosTokenIds);
    }
  });

  test.for(invalidSequences)("%s is rejected", async ([, bytes]) => {
    const createMatcher = load(await compileOnce(shapesVocabulary, oneCharacter));
    const matcher = createMatcher();
    expect(bytes.every((byte) => matcher.accept(tokens.get(byte)!))).toBe(false);
  });
});

test("special tokens are never allowed, even where anything else is", async () => {
  await using compiler = createTestCompiler(shapesVocabulary);
  const grammar = await compiler.compile({ kind: "regex", pattern: "[^\\n]*" });
  const matcher = load(grammar)();
  const special = allowedTokens(matcher, shapesVocabulary.vocabSize).filter((id) =>
    shapesVocabulary.tokenizer.isSpecial(id),
  );
  expect(special).toEqual(shapesVocabulary.eosTokenIds);
});
