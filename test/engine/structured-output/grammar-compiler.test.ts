import { afterAll, expect, test } from "vitest";

import type { StructuredOutput } from "../../../engine/structured-output/structured-output.ts";
import { GrammarCompiler } from "../../../engine/structured-output/grammar-compiler.ts";
import { createGrammarVocabulary } from "../../../engine/structured-output/grammar-vocabulary.ts";
import { createTestCompiler, shapesVocabulary } from "./grammars.ts";

function schema(value: unknown): StructuredOutput {
  return { kind: "json-schema", schema: JSON.stringify(value) };
}

const deepSchema = Array.from({ length: 65 }).reduce<object>((items) => ({ type: "array", items }), { type: "null" });

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
  ["an empty schema", { kind: "json-schema", schema: "" }, "json cannot be an empty string"],
  ["a long pattern", { kind: "regex", pattern: "a".repeat(300_000) }, "at most 262144 bytes, got 300000"],
  ["deep groups", { kind: "regex", pattern: "(".repeat(65) + ")".repeat(65) }, "nest at most 64 groups"],
  ["a deep schema", schema(deepSchema), "nested too deeply"],
  ["a schema that is no JSON", { kind: "json-schema", schema: '{"type":' }, "json is not JSON"],
  ["a schema that is no schema", schema(["string"]), "json must be a JSON Schema"],
  ["a type that does not exist", schema({ type: "text" }), 'Unsupported type "text"'],
  ["a reference to nothing", schema({ $ref: "#/$defs/nothing" }), "Cannot find field $defs"],
  ["a reference elsewhere", schema({ $ref: "https://example.com/a.json" }), "json.$ref must be # or begin with #/"],
  ["a reference to an anchor", schema({ items: { $ref: "#a" } }), "json.items.$ref must be # or begin with #/"],
  ["a schema that is itself", schema({ $ref: "#" }), "never comes to an end"],
  [
    "schemas that are each other",
    schema({ $ref: "#/$defs/a", $defs: { a: { $ref: "#/$defs/b" }, b: { $ref: "#/$defs/a" } } }),
    "never comes to an end",
  ],
  [
    "an object that requires one like itself",
    schema({ type: "object", properties: { a: { $ref: "#" } }, required: ["a"] }),
    "never comes to an end",
  ],
  [
    "a rule that only leads to itself",
    { kind: "grammar", grammar: 'root ::= root "a"' },
    "its rule root never comes to an end",
  ],
  [
    "a way into a rule that never ends",
    { kind: "grammar", grammar: 'root ::= "a" | "b" more\nmore ::= "c" more' },
    "its rule more never comes to an end",
  ],
  ["a grammar that never ends", { kind: "grammar", grammar: 'root ::= "a" root' }, "never comes to an end"],
  ["a keyword that would be ignored", schema({ type: "array", items: { not: {} } }), "json.items has the keyword not"],
  [
    "multipleOf",
    schema({ properties: { a: { type: "integer", multipleOf: 5 } } }),
    "json.properties.a has the keyword multipleOf",
  ],
  ["restrictions beside anyOf", schema({ anyOf: [{}], required: ["a"] }), "the keywords anyOf and required together"],
  ["a range between fractions", schema({ type: "number", minimum: 0.5, maximum: 1 }), "json has a range of numbers"],
  ["a range of any values", schema({ minimum: 0 }), "json has a range of numbers"],
  [
    "names of a form beside names",
    schema({ propertyNames: { pattern: "a" }, properties: { a: {} } }),
    "propertyNames and properties together",
  ],
  [
    "names without a pattern beside values of a form",
    schema({ propertyNames: { maxLength: 3 }, additionalProperties: { type: "null" } }),
    "propertyNames without a pattern and additionalProperties together",
  ],
  [
    "a property that is required and forbidden",
    schema({ properties: { a: {} }, required: ["b"], additionalProperties: false }),
    "requires the property b",
  ],
  ["a required property that is no name", schema({ required: [1] }), "json.required must be a list of names"],
  ["an empty range", schema({ type: "integer", minimum: 5, maximum: 4 }), "json has a range of numbers"],
  [
    "a pattern beside a length",
    schema({ type: "string", pattern: "a", maxLength: 3 }),
    "the keywords pattern and maxLength together",
  ],
  ["allOf of several", schema({ allOf: [{}, {}] }), "json.allOf may have one entry, got 2"],
  ["a pattern that needs quotes in JSON", schema({ type: "string", pattern: '"' }), 'Nothing can match "'],
  ["an open bracket", { kind: "regex", pattern: "[a" }, "Unclosed '['"],
  ["a lookahead", { kind: "regex", pattern: "a(?=b)" }, "Lookahead is not supported"],
  ["a set of part of Unicode", { kind: "regex", pattern: "[一-龥]" }, "The set [一-龥] is not supported"],
  ["a grammar without root", { kind: "grammar", grammar: 'start ::= "a"' }, 'root rule with name "root" is not found'],
  ["a grammar with an open group", { kind: "grammar", grammar: 'root ::= ("a"' }, "EBNF parser error"],
];

test.for(refusals)("%s is refused with the reason", async ([, structuredOutput, reason]) => {
  await expect(sharedCompiler.compile(structuredOutput)).rejects.toMatchObject({
    name: "EngineError",
    code: "invalid_argument",
    parameter: "samplingParams.structuredOutput",
    message: expect.stringContaining(reason),
  });
});

test("the thread survives what it refuses", async () => {
  await using compiler = createTestCompiler(shapesVocabulary);
  await expect(compiler.compile({ kind: "regex", pattern: "[a" })).rejects.toThrow("Unclosed");
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

/** Takes minutes. */
const endless: StructuredOutput = { kind: "regex", pattern: "((a{1,500}b{1,500}){1,500}c{1,500}){1,500}" };

test("a grammar that takes too long is refused, and the next is compiled", async () => {
  await using compiler = createTestCompiler(shapesVocabulary, 500);
  await expect(compiler.compile(endless)).rejects.toMatchObject({
    code: "invalid_argument",
    message: "The structured output takes more than 0.5 s to compile.",
  });
  await expect(compiler.compile({ kind: "choice", choices: ["a"] })).resolves.toBeDefined();
});

test("a caller that gives up leaves the grammar to the others", async () => {
  await using compiler = createTestCompiler(shapesVocabulary);
  const controller = new AbortController();
  const given = compiler.compile({ kind: "json-object" }, { signal: controller.signal });
  const kept = compiler.compile({ kind: "json-object" });
  controller.abort(new Error("gone"));
  await expect(given).rejects.toThrow("gone");
  await expect(kept).resolves.toBeDefined();
});

test("grammars nobody waits for any more are not begun", async () => {
  await using compiler = createTestCompiler(shapesVocabulary);
  const controller = new AbortController();
  const first = compiler.compile({ kind: "regex", pattern: "first" });
  const abandoned = compiler.compile(endless, { signal: controller.signal });
  controller.abort(new Error("gone"));
  await expect(abandoned).rejects.toThrow("gone");
  await first;
  await expect(compiler.compile({ kind: "regex", pattern: "last" })).resolves.toBeDefined();
});

test("closing gives up what is being compiled", async () => {
  const compiler = createTestCompiler(shapesVocabulary);
  await compiler.compile({ kind: "regex", pattern: "a" });
  const pending = compiler.compile(endless);
  const settled = Promise.allSettled([pending]);
  await compiler[Symbol.asyncDispose]();
  expect(await settled).toMatchObject([{ reason: { code: "closed" } }]);
  await expect(compiler.compile({ kind: "regex", pattern: "a" })).rejects.toMatchObject({ code: "closed" });
});

test("a queue of grammars has a limit", async () => {
  const compiler = createTestCompiler(shapesVocabulary);
  const pending = Array.from({ length: 70 }, (_, index) => compiler.compile({ kind: "regex", pattern: `${index}` }));
  const settled = Promise.allSettled(pending);
  await compiler[Symbol.asyncDispose]();
  const codes = (await settled).map((result) =>
    result.status === "rejected" ? (result.reason as { code: string }).code : "done",
  );
  expect(codes.filter((code) => code === "queue_full")).toHaveLength(6);
});

test("a model without end tokens takes no structured output", async () => {
  const { tokenizer, vocabSize } = shapesVocabulary;
  await using compiler = new GrammarCompiler({
    loadVocabulary: () => createGrammarVocabulary(tokenizer, vocabSize, []),
  });
  await expect(compiler.compile({ kind: "json-object" })).rejects.toMatchObject({
    code: "invalid_argument",
    message: "The model has no token that ends a text, which structured output needs.",
  });
});
