/** Expressions with parts that stand in several places: as trees, they would be exponentially large. */
import { expect, test } from "vitest";

import { compileProgram } from "../../../engine/structured-output/compiled-grammar.ts";
import type { Expression } from "../../../engine/structured-output/expression.ts";
import { readJsonSchema } from "../../../engine/structured-output/json-schema-language.ts";
import { toProgramInSlices } from "../../../engine/structured-output/language-program.ts";
import {
  findEndlessRule,
  findNullableRules,
  mentionedRules,
} from "../../../engine/structured-output/rule-properties.ts";

const NUM_LEVELS = 18;

/** Each level has the one below it twice; counts how often its parts are looked at. */
function nestedTwice(): { readonly root: Expression; readonly numReads: () => number } {
  let numReads = 0;
  let root: Expression = { kind: "rule", name: "leaf" };
  for (let level = 0; level < NUM_LEVELS; level++) {
    const parts: readonly Expression[] = [{ kind: "words", words: ["["] }, root, root];
    root = {
      kind: "sequence",
      get parts() {
        numReads++;
        return parts;
      },
    };
  }
  return { root, numReads: () => numReads };
}

const walks: Readonly<Record<string, (root: Expression, rules: Map<string, Expression>) => unknown>> = {
  findEndlessRule: (root, rules) => findEndlessRule({ root, rules }),
  findNullableRules: (root, rules) => findNullableRules({ root, rules }),
  mentionedRules: (root) => mentionedRules(root),
  toProgramInSlices: (root, rules) => [...toProgramInSlices({ root, rules })],
};

test.for(Object.entries(walks))("%s looks at each part a few times", ([, walk]) => {
  const { root, numReads } = nestedTwice();
  walk(
    root,
    new Map([
      ["top", root],
      ["leaf", { kind: "set", set: [[0x61, 0x7a]] }],
    ]),
  );
  expect(numReads()).toBeLessThanOrEqual(NUM_LEVELS * 10);
});

/** By name, how a schema is within another one. */
const nestings: Readonly<Record<string, (inner: object) => object>> = {
  "lists in lists": (items) => ({ type: "array", items }),
  "lists with first items": (inner) => ({ type: "array", prefixItems: [inner], items: { type: "null" } }),
  "lists of two types that are one": (items) => ({ type: ["array", "array"], items }),
  "objects of any names": (additionalProperties) => ({ type: "object", additionalProperties }),
  "objects with names by pattern": (inner) => ({ type: "object", patternProperties: { a: inner } }),
  "objects that may have a property": (inner) => ({ type: "object", properties: { a: inner, b: { type: "null" } } }),
  "objects that require names without schemas": (additionalProperties) => ({
    type: "object",
    required: ["a", "b"],
    additionalProperties,
  }),
};

function nestedSchema(nest: (inner: object) => object, numLevels: number): string {
  let schema: object = { type: "null" };
  for (let level = 0; level < numLevels; level++) schema = nest(schema);
  return JSON.stringify(schema);
}

test.for(Object.entries(nestings))("%s are read into parts in proportion to their levels", ([, nest]) => {
  const numParts = (numLevels: number): number => countParts(readJsonSchema(nestedSchema(nest, numLevels)));
  const [none, few, many] = [numParts(0), numParts(5), numParts(10)];
  expect(many - few).toBeLessThanOrEqual((few - none) * 2);
});

test.for(Object.entries(nestings))("%s of 60 levels are compiled", ([, nest]) => {
  const { nodes } = compileProgram({ kind: "json-schema", schema: nestedSchema(nest, 60) });
  expect(nodes.length).toBeLessThan(60 * 400);
});

/** Each value once. */
function countParts({ root, rules }: ReturnType<typeof readJsonSchema>): number {
  const seen = new Set<Expression>();
  const visit = (expression: Expression): void => {
    if (seen.size === seen.add(expression).size) return;
    if (expression.kind === "sequence") expression.parts.forEach(visit);
    if (expression.kind === "alternatives") expression.options.forEach(visit);
    if (expression.kind === "repetition" || expression.kind === "limited") visit(expression.part);
  };
  for (const expression of [root, ...rules.values()]) visit(expression);
  return seen.size;
}

test("a type that is repeated is read once", () => {
  const properties = { a: {}, b: {}, c: {} };
  const numRules = (type: unknown): number => readJsonSchema(JSON.stringify({ type, properties })).rules.size;
  expect(numRules(Array.from({ length: 100 }, () => "object"))).toBe(numRules("object"));
});

test("names of rules do not repeat long names of properties", () => {
  const inner = { type: "object", properties: { a: {}, b: {}, c: {} } };
  const { rules } = readJsonSchema(JSON.stringify({ type: "object", properties: { ["x".repeat(20_000)]: inner } }));
  expect(Math.max(...Array.from(rules.keys(), ({ length }) => length))).toBeLessThan(1000);
});

test("a range of numbers that many schemas have is read once", () => {
  const numParts = (range: object): number => {
    const items = Array.from({ length: 100 }, () => ({ type: "integer", ...range }));
    return countParts(readJsonSchema(JSON.stringify({ prefixItems: items })));
  };
  const [minimum, maximum] = [Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER];
  expect(numParts({ minimum, maximum })).toBeLessThan(numParts({}) + 2000);
});

test("a set that a pattern repeats is escaped once", () => {
  const numParts = (length: number): number =>
    countParts(readJsonSchema(JSON.stringify({ type: "string", pattern: ".[^a]".repeat(length) })));
  expect(numParts(1000)).toBe(numParts(10));
});

test.for<[string, (inner: object) => object]>([
  ["objects in objects", (inner) => ({ properties: { a: {}, b: inner } })],
  [
    "objects in objects whose properties are counted",
    (inner) => ({ properties: { a: {}, b: inner }, maxProperties: 2 }),
  ],
  ["objects in further properties", (inner) => ({ properties: { a: {}, b: {} }, additionalProperties: inner })],
])("the rules of %s have parts of their own", ([, nest]) => {
  const numPartsOfRules = (numLevels: number): number => {
    const { rules } = readJsonSchema(nestedSchema(nest, numLevels));
    return rules.values().reduce((sum, root) => sum + countParts({ root, rules: new Map() }), 0);
  };
  const [few, some, many] = [numPartsOfRules(10), numPartsOfRules(20), numPartsOfRules(30)];
  expect(many - some).toBe(some - few);
});
