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
    if (expression.kind === "repetition") visit(expression.part);
  };
  for (const expression of [root, ...rules.values()]) visit(expression);
  return seen.size;
}
