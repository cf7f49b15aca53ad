/** Several patterns, negated ones, and keywords of other dialects allow the values that Ajv finds valid. */
import { expect, test } from "vitest";

import { isWhole, readerOf, verdictsOf } from "./schema-readers.ts";

const text = { type: "string" };

test.for<[string, object, readonly unknown[]]>([
  [
    "two patterns, as Zod writes startsWith and endsWith",
    { ...text, allOf: [{ pattern: "^a.*" }, { pattern: ".*z$" }] },
    ["az", "abz", "a", "z", "ab", "", "a\nz"],
  ],
  [
    "three patterns and a length",
    { ...text, maxLength: 4, allOf: [{ pattern: "x" }, { pattern: "^\\w+$" }, { pattern: "[0-9]" }] },
    ["x1", "1ax", "x", "1", "x 1", "x1234"],
  ],
  ["a negated pattern", { ...text, not: { pattern: "^a|b$" } }, ["xa", "", "a", "ab", "cb", "bc"]],
  [
    "a condition on a pattern",
    {
      type: "object",
      properties: { id: text, size: { type: "integer" } },
      required: ["id"],
      if: { properties: { id: { not: { pattern: "^big" } } } },
      else: { required: ["size"] },
    },
    [{ id: "big", size: 1 }, { id: "big" }, { id: "small" }],
  ],
  [
    "constants excluded from a pattern",
    { ...text, pattern: "^[ab.]+$", not: { enum: ["a", "."] } },
    ["aa", "b", "a", ".", "c"],
  ],
  [
    "constants excluded beside a length",
    { ...text, maxLength: 2, not: { enum: ["a(", "b"] } },
    ["a", "b", "a(", "abc", ""],
  ],
  [
    "unknown keywords with different values",
    {
      allOf: [
        { "x-a": 1, ...text },
        { "x-a": 2, minLength: 1 },
      ],
    },
    ["a", ""],
  ],
  [
    "other properties of two schemas",
    { type: "object", allOf: [{ additionalProperties: { minimum: 2 } }, { additionalProperties: { maximum: 4 } }] },
    [{ a: 3 }, { a: 1 }, { a: 5 }],
  ],
  ["no names", { type: "object", propertyNames: false }, [{}, { a: 1 }]],
  ["nullable types of OpenAPI 3.0", { type: "string", nullable: true, enum: ["a", null] }, ["a", null, "b"]],
  ["a type that is not nullable", { ...text, nullable: false }, ["a", null]],
])("%s", ([, schema, values]) => {
  const { ours, ofAjv } = verdictsOf(schema, values);
  expect(ours).toEqual(ofAjv);
});

test("bounds without a type describe numbers", () => {
  const reader = readerOf({
    anyOf: [
      { minimum: 2, maximum: 4 },
      { multipleOf: 10, maximum: 30, minimum: 20 },
    ],
  });
  expect([2, 4, 20, 30, 1, 5, 25].filter((value) => isWhole(reader, value))).toEqual([2, 4, 20, 30]);
});

test("emoji are known by their properties, as Zod writes them", () => {
  const reader = readerOf({ ...text, pattern: "^(\\p{Extended_Pictographic}|\\p{Emoji_Component})+$" });
  expect(["😀", "👍🏽", "a"].map((value) => isWhole(reader, value))).toEqual([true, true, false]);
});

test("patterns with lengths take a bounded number of rules together", () => {
  const option = (index: number): object => ({ ...text, pattern: `^(?=.*a${index}).*b{3}`, maxLength: 200 });
  expect(() => readerOf({ anyOf: Array.from({ length: 40 }, (_, index) => option(index)) })).toThrow(
    "take more than 10000 states",
  );
  expect(isWhole(readerOf({ anyOf: [option(1), option(2)] }), "a2bbb")).toBe(true);
});
