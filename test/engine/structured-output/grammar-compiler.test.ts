import { afterAll, expect, test } from "vitest";

import { GrammarCompiler } from "../../../engine/structured-output/grammar-compiler.ts";
import { createGrammarVocabulary } from "../../../engine/structured-output/grammar-vocabulary.ts";
import type { StructuredOutput } from "../../../engine/structured-output/structured-output.ts";
import { countTurns } from "../../support/count-turns.ts";
import { createTestCompiler, shapesVocabulary } from "./grammars.ts";

function schema(value: unknown): StructuredOutput {
  return { kind: "json-schema", schema: JSON.stringify(value) };
}

const deepSchema = Array.from({ length: 65 }).reduce<object>((items) => ({ type: "array", items }), { type: "null" });

/** JSON that JSON.stringify cannot write again. */
const deepList = "[".repeat(50_000) + "]".repeat(50_000);

/** Takes 60 x 60 rules. */
const countedObject = {
  properties: Object.fromEntries(Array.from({ length: 60 }, (_, index) => [`p${index}`, true])),
  maxProperties: 60,
};

const sharedCompiler = createTestCompiler(shapesVocabulary);
afterAll(() => sharedCompiler[Symbol.asyncDispose]());

const refusals: [string, StructuredOutput, string][] = [
  ["an empty list of choices", { kind: "choice", choices: [] }, "choice cannot be an empty list"],
  ["an empty choice", { kind: "choice", choices: ["a", ""] }, "choice cannot contain an empty string"],
  [
    "too many choices",
    { kind: "choice", choices: Array.from({ length: 10_001 }, String) },
    "at most 10000 entries, got 10001",
  ],
  ["half a character", { kind: "choice", choices: ["\uD800"] }, "half of a surrogate pair"],
  ["an empty grammar", { kind: "grammar", grammar: " \n" }, "grammar cannot be an empty string"],
  ["an empty pattern", { kind: "regex", pattern: "" }, "regex cannot be an empty string"],
  [
    "counted properties of many objects",
    schema({ prefixItems: Array.from({ length: 60 }, () => countedObject) }),
    "the bounds for their number take more than 15000 rules",
  ],
  ["an empty schema", { kind: "json-schema", schema: "" }, "json cannot be an empty string"],
  ["a long pattern", { kind: "regex", pattern: "a".repeat(300_000) }, "at most 262144 bytes, got 300000"],
  ["deep groups", { kind: "regex", pattern: "(".repeat(65) + ")".repeat(65) }, "nest at most 64 groups"],
  ["a deep schema", schema(deepSchema), "nested too deeply"],
  ["a deep constant", { kind: "json-schema", schema: `{"const":${deepList}}` }, "json is nested too deeply"],
  ["a deep type", { kind: "json-schema", schema: `{"type":${deepList}}` }, "json is nested too deeply"],
  ["a schema that is no JSON", { kind: "json-schema", schema: '{"type":' }, "json is not JSON"],
  ["a schema that is no schema", schema(["string"]), "json must be a JSON Schema"],
  ["a type that does not exist", schema({ type: "text" }), 'Unsupported type "text"'],
  ["a reference to nothing", schema({ $ref: "#/$defs/nothing" }), "Cannot find field $defs"],
  [
    "a reference elsewhere",
    schema({ $ref: "https://example.com/a.json" }),
    'json.$ref is "https://example.com/a.json", which is not a place in this schema',
  ],
  ["a reference to no anchor", schema({ items: { $ref: "#a" } }), 'json.items.$ref is "#a", which is not a place'],
  [
    "a part elsewhere",
    schema({ allOf: [{ $ref: "other.json" }, { type: "object" }] }),
    'json.allOf.0.$ref is "other.json", which is not a place in this schema',
  ],
  [
    "a reference whose target depends on the way to it",
    schema({
      $dynamicAnchor: "a",
      items: { $dynamicRef: "#a" },
      $defs: { b: { $id: "b", $dynamicAnchor: "a" } },
    }),
    "json.items has the keyword $dynamicRef beside more than one $dynamicAnchor a",
  ],
  ["a schema that is itself", schema({ $ref: "#" }), "never ends"],
  [
    "schemas that are each other",
    schema({ $ref: "#/$defs/a", $defs: { a: { $ref: "#/$defs/b" }, b: { $ref: "#/$defs/a" } } }),
    "never ends",
  ],
  [
    "an object that requires one like itself",
    schema({ type: "object", properties: { a: { $ref: "#" } }, required: ["a"] }),
    "never ends",
  ],
  ["a rule that only leads to itself", { kind: "grammar", grammar: 'root ::= root "a"' }, "its rule root never ends"],
  [
    "a way into a rule that never ends",
    { kind: "grammar", grammar: 'root ::= "a" | "b" more\nmore ::= "c" more' },
    "its rule more never ends",
  ],
  ["a grammar that never ends", { kind: "grammar", grammar: 'root ::= "a" root' }, "never ends"],
  [
    "a dynamic reference to no anchor",
    schema({ type: "array", items: { $dynamicRef: "#a" } }),
    'json.items.$dynamicRef is "#a", which is not a place',
  ],
  ["multiples of zero", schema({ type: "integer", multipleOf: 0 }), "json.multipleOf must be a number above 0"],
  ["multiples of texts", schema({ type: "string", multipleOf: 5 }), "json has multipleOf beside another type"],
  [
    "a range without a multiple",
    schema({ properties: { a: { type: "integer", multipleOf: 5, minimum: 6, maximum: 9 } } }),
    "json.properties.a.multipleOf is 5, of which no number of at most 15 digits within the bounds is a multiple",
  ],
  [
    "multiples that take too many parts",
    schema({ type: "integer", multipleOf: 7919 }),
    "json.multipleOf is 7919, whose multiples take too many parts; narrow the range",
  ],
  ["a pattern beside an enum", schema({ enum: ["a"], pattern: "b" }), "the keywords enum and pattern together"],
  [
    "parts without a common type",
    schema({ allOf: [{ type: "string" }, { type: "null" }] }),
    "json has parts that no type",
  ],
  [
    "parts with two formats",
    schema({ properties: { a: { allOf: [{ format: "date" }, { format: "time" }] } } }),
    "json.properties.a has parts with different values of format",
  ],
  [
    "a closed part that lacks a property of another",
    schema({ allOf: [{ properties: { a: {} }, additionalProperties: false }, { properties: { b: {} } }] }),
    "json has a part with additionalProperties that does not list the property b of another part",
  ],
  [
    "parts that refer to themselves in different ways",
    schema({
      allOf: [{ $ref: "#/$defs/a" }, { $ref: "#/$defs/b" }],
      $defs: {
        a: { properties: { p: { $ref: "#/$defs/a" }, q: { $ref: "#/$defs/a" } } },
        b: { properties: { p: { $ref: "#/$defs/b" }, q: { $ref: "#/$defs/b" } } },
      },
    }),
    "is nested too deeply",
  ],
  [
    "long chains of parts",
    schema({
      $defs: Object.fromEntries(
        Array.from({ length: 300 }, (_, index) => {
          const next = { $ref: `#/$defs/${Math.min(index + 1, 299)}` };
          return [index, { allOf: [next, { ...next }], minLength: 1 }];
        }),
      ),
    }),
    "json is too large: allOf, conditions and keywords beside $ref up to",
  ],
  ["a part that is no schema", schema({ allOf: [{}, 1] }), "json.allOf has an entry that is not a JSON Schema"],
  ["a range of too large numbers", schema({ type: "number", minimum: 1e200 }), "json has a range of numbers"],
  [
    "names of a form beside names",
    schema({ propertyNames: { pattern: "a" }, properties: { a: {} } }),
    "propertyNames and properties together",
  ],
  [
    "a property that is required and forbidden",
    schema({ properties: { a: {} }, required: ["b"], additionalProperties: false }),
    "requires the property b",
  ],
  ["a required property that is no name", schema({ required: [1] }), "json.required must be a list of names"],
  ["an empty range", schema({ type: "integer", minimum: 5, maximum: 4 }), "json has a range of numbers"],
  [
    "a pattern whose texts are all too long",
    schema({ type: "string", pattern: "^a{4,}$", maxLength: 3 }),
    "json.maxLength is 3, but every text of its pattern has 4 characters or more",
  ],
  [
    "a pattern whose texts are all too short",
    schema({ properties: { a: { pattern: "^a{1,3}$", minLength: 4 } } }),
    "json.properties.a.minLength is 4, but no text of its pattern has that many characters",
  ],
  [
    "a length beside a pattern that stands elsewhere with another one",
    schema({ properties: { a: { pattern: "^a{1,3}$", minLength: 2 }, b: { pattern: "^a{1,3}$", minLength: 5 } } }),
    "json.properties.b.minLength is 5, but no text of its pattern",
  ],
  [
    "a length that takes too many parts",
    schema({ properties: { a: { pattern: "^([a-c]+-)*$", minLength: 300 } } }),
    "json.properties.a.minLength is 300, which takes too many parts beside its pattern",
  ],
  [
    "lengths that take too many parts together",
    schema({
      anyOf: Array.from({ length: 80 }, (_, index) => ({ pattern: `^[a-c]*-[a-z]*${index}$`, minLength: 300 })),
    }),
    "which takes too many parts beside its pattern",
  ],
  [
    "too many characters of patterns beside maximum lengths",
    schema({ anyOf: ["a", "b", "c"].map((letter) => ({ pattern: letter.repeat(7000) + "*", maxLength: 9000 })) }),
    "more than 20000 characters",
  ],
  [
    "too many different ranges of numbers",
    schema({ prefixItems: Array.from({ length: 500 }, (_, index) => ({ type: "integer", maximum: 8e6 + index })) }),
    "have too many different ranges of numbers",
  ],
  [
    "a required property that is not among the listed names",
    schema({ propertyNames: { enum: ["a"] }, required: ["b"] }),
    "json requires the property b, which propertyNames does not list",
  ],
  [
    "a required property beside names of a form",
    schema({ propertyNames: { pattern: "a" }, required: ["a"] }),
    "propertyNames and required together",
  ],
  [
    "a range of lengths that is empty",
    schema({ minLength: 4, maxLength: 2 }),
    "json.minLength is 4, which is more than",
  ],
  ["a length below zero", schema({ minLength: -1 }), "json.minLength must be a whole number of at least 0"],
  ["no options", schema({ anyOf: [] }), "json.anyOf must be a list with at least one entry"],
  [
    "more properties than there may be",
    schema({ type: "object", properties: { a: {} }, minProperties: 2 }),
    "no room for its required properties",
  ],
  ["fewer items than are described", schema({ prefixItems: [{}, {}], maxItems: 1 }), "json requires at most 1 items"],
  [
    "what a reference outside of the usual places leads to",
    schema({ $ref: "#/other", other: { type: "string", multipleOf: 2 } }),
    "#/other has multipleOf beside another type",
  ],
  [
    "a constant whose digits are lost",
    { kind: "json-schema", schema: '{"const": 1234567890123456789}' },
    "json.const is 1234567890123456800: integers beyond 2^53",
  ],
  [
    "a constant beyond all numbers, within a value",
    { kind: "json-schema", schema: '{"enum": [{"a": [1e400]}]}' },
    "json.enum.0.a.0 is Infinity",
  ],
  [
    "a constant of many levels",
    { kind: "json-schema", schema: `{"const": ${"[".repeat(100_000)}${"]".repeat(100_000)}}` },
    "is nested too deeply",
  ],
  [
    "too many long names beside others",
    schema({
      properties: Object.fromEntries(Array.from({ length: 21 }, (_, index) => [`${index}`.padEnd(1000, "a"), {}])),
      additionalProperties: true,
    }),
    "more than 20000 characters",
  ],
  ["an open bracket", { kind: "regex", pattern: "[a" }, "a set of characters that is not closed"],
  ["a lookbehind", { kind: "regex", pattern: "a(?<=b)" }, "a lookbehind at position 1"],
  ["a set without characters", { kind: "regex", pattern: "[^\\0-\\U0010FFFF]" }, "that nothing can match"],
  ["deep groups in a schema", schema({ pattern: "(".repeat(65) + ")".repeat(65) }), "nest at most 64 groups"],
  [
    "a grammar of Lark",
    { kind: "grammar", grammar: '?start: "a"+' },
    'The grammar is in Lark\'s notation at position 0, which is not supported. Write EBNF, such as root ::= "a"+',
  ],
  ["an import of Lark", { kind: "grammar", grammar: "%import common.WS" }, "Lark's notation at position 0"],
  ["a grammar without root", { kind: "grammar", grammar: 'start ::= "a"' }, 'The grammar has no rule "root"'],
  [
    "a grammar with a group that is not closed",
    { kind: "grammar", grammar: 'root ::= ("a"' },
    "The grammar expects ) at position 13",
  ],
  // Of plain JavaScript.
  ["no kind", {} as StructuredOutput, "The kind of the structured output is undefined; expected "],
  ["a schema as an object", { kind: "json-schema", schema: {} as string }, "json must be a text, got an object."],
  ["a regex as such", { kind: "regex", pattern: /a/ as unknown as string }, "regex must be a text, got an object."],
  ["no choices", { kind: "choice" } as StructuredOutput, "choice must be a list of texts, got undefined."],
  ["a number as a choice", { kind: "choice", choices: [1 as never] }, "Each choice must be a text, got 1."],
];

test.for(refusals)("%s is rejected with the reason", async ([, structuredOutput, reason]) => {
  await expect(sharedCompiler.compile(structuredOutput)).rejects.toMatchObject({
    name: "EngineError",
    code: "invalid_argument",
    parameter: "samplingParams.structuredOutput",
    message: expect.stringContaining(reason),
  });
});

test("a structured output after a rejected one is compiled", async () => {
  await using compiler = createTestCompiler(shapesVocabulary);
  await expect(compiler.compile({ kind: "regex", pattern: "[a" })).rejects.toThrow("a set");
  await expect(compiler.compile({ kind: "regex", pattern: "a" })).resolves.toBeDefined();
});

test("equal structured outputs are compiled once, also at the same time", async () => {
  await using compiler = createTestCompiler(shapesVocabulary);
  const [first, second] = await Promise.all([
    compiler.compile({ kind: "regex", pattern: "a+" }),
    compiler.compile({ kind: "regex", pattern: "a+" }),
  ]);
  expect(second).toBe(first);
  expect(await compiler.compile({ kind: "regex", pattern: "a+" })).toBe(first);
  expect((await compiler.compile({ kind: "regex", pattern: "b+" })).id).not.toBe(first.id);
});

test("a caller that aborts does not cancel the grammar for the others", async () => {
  await using compiler = createTestCompiler(shapesVocabulary);
  const controller = new AbortController();
  const given = compiler.compile({ kind: "json-object" }, { signal: controller.signal });
  const kept = compiler.compile({ kind: "json-object" });
  controller.abort(new Error("gone"));
  await expect(given).rejects.toThrow("gone");
  await expect(kept).resolves.toBeDefined();
});

const longPattern = (letter: string): StructuredOutput => ({ kind: "regex", pattern: `[${letter}]?`.repeat(50_000) });

test("structured outputs are not compiled when every request for them is aborted", async () => {
  await using compiler = createTestCompiler(shapesVocabulary);
  const controller = new AbortController();
  const first = compiler.compile({ kind: "regex", pattern: "first" });
  const abandoned = compiler.compile(longPattern("a"), { signal: controller.signal });
  controller.abort(new Error("gone"));
  await expect(abandoned).rejects.toThrow("gone");
  await first;
  await expect(compiler.compile(longPattern("a"))).resolves.toBeDefined();
});

test("large structured outputs do not delay a small one that comes later", async () => {
  await using compiler = createTestCompiler(shapesVocabulary);
  const order: string[] = [];
  const note = (name: string): void => void order.push(name);
  const large = Array.from("abcd", (letter) => compiler.compile(longPattern(letter)).then(() => note(letter)));
  const small = compiler.compile({ kind: "regex", pattern: "yes|no" }).then(() => note("small"));
  await Promise.all([...large, small]);
  expect(order).toEqual(["small", "a", "b", "c", "d"]);
});

test("tenants share the compiler, so one that sends much does not delay another", async () => {
  await using compiler = createTestCompiler(shapesVocabulary);
  const order: string[] = [];
  const compile = async (letter: string, length: number, tenant: string): Promise<void> => {
    await compiler.compile({ kind: "regex", pattern: `[${letter}]?`.repeat(length) }, { tenant });
    order.push(tenant);
  };
  const crowd = Array.from("abcdefghijklmnopqrstuvwxyz", (letter) => compile(letter, 4000, "crowd"));
  await Promise.all([...crowd, compile("a", 10_000, "other")]);
  // As soon as the crowd has had as much.
  expect(order.indexOf("other")).toBeLessThanOrEqual(3);
});

test("of equal structured outputs of two tenants, the share of whoever is first counts", async () => {
  await using compiler = createTestCompiler(shapesVocabulary);
  const order: string[] = [];
  const compile = async (letter: string, tenant: string): Promise<void> => {
    await compiler.compile(longPattern(letter), { tenant });
    order.push(letter);
  };
  await Promise.all([...Array.from("abcdefgh", (letter) => compile(letter, "crowd")), compile("h", "other")]);
  expect(order.indexOf("h")).toBeLessThanOrEqual(2);
  expect(order.filter((letter) => letter === "h")).toHaveLength(2);
});

test("the event loop runs between two compilations", async () => {
  await using compiler = createTestCompiler(shapesVocabulary);
  await compiler.compile({ kind: "regex", pattern: "a" });
  const compileAll = () => Promise.all(Array.from("abcd", (letter) => compiler.compile(longPattern(letter))));
  expect(await countTurns(compileAll)).toBeGreaterThanOrEqual(3);
});

test("closing rejects waiting compilations", async () => {
  const compiler = createTestCompiler(shapesVocabulary);
  await compiler.compile({ kind: "regex", pattern: "a" });
  const pending = compiler.compile({ kind: "regex", pattern: "b" });
  const settled = Promise.allSettled([pending]);
  await compiler[Symbol.asyncDispose]();
  expect(await settled).toMatchObject([{ reason: { code: "closed" } }]);
  await expect(compiler.compile({ kind: "regex", pattern: "a" })).rejects.toMatchObject({ code: "closed" });
});

test("a full queue drops the largest structured outputs and accepts small ones", async () => {
  await using compiler = createTestCompiler(shapesVocabulary);
  const large = Array.from({ length: 70 }, (_, index) =>
    compiler.compile({ kind: "regex", pattern: `${"a".repeat(1000)}${index + 100}` }),
  );
  const small = Array.from({ length: 10 }, (_, index) => compiler.compile({ kind: "regex", pattern: `a${index}` }));
  const codesOf = async (pending: readonly Promise<unknown>[]): Promise<string[]> =>
    (await Promise.allSettled(pending)).map((result) =>
      result.status === "rejected" ? (result.reason as { code: string }).code : "done",
    );
  const [largeCodes, smallCodes] = await Promise.all([codesOf(large), codesOf(small)]);
  expect(largeCodes.filter((code) => code === "queue_full")).toHaveLength(16);
  expect(new Set(smallCodes)).toEqual(new Set(["done"]));
});

test("a model without end tokens accepts no structured output", async () => {
  const { tokenizer, vocabSize } = shapesVocabulary;
  await using compiler = new GrammarCompiler({
    loadVocabulary: () => createGrammarVocabulary(tokenizer, vocabSize, []),
  });
  await expect(compiler.compile({ kind: "json-object" })).rejects.toMatchObject({
    code: "invalid_argument",
    message: "The model has no token that ends a text, which structured output needs.",
  });
});
