/** Alternatives of `oneOf` exclude each other, as Ajv says. */
import { Ajv2020 } from "ajv/dist/2020.js";
import * as fc from "fast-check";
import { expect, test } from "vitest";

import { checkSchema, createSchemaCheck } from "../../../engine/structured-output/json-schema.ts";
import { isWhole, readerOf, verdictsOf } from "./schema-readers.ts";

const text = { type: "string" };
const closed = (properties: object, ...required: string[]): object => ({
  type: "object",
  properties,
  required,
  additionalProperties: false,
});

test.for<[string, object, readonly unknown[]]>([
  [
    "numbers in two ranges",
    {
      oneOf: [
        { type: "integer", minimum: 3 },
        { type: "integer", maximum: 5 },
      ],
    },
    [1, 3, 5, 6],
  ],
  ["a string and its short ones", { oneOf: [text, { type: "string", maxLength: 2 }] }, ["", "ab", "abc", 1]],
  ["constants of two lists", { oneOf: [{ enum: ["a", "b"] }, { enum: ["b", 1] }] }, ["a", "b", 1]],
  [
    "a discriminator",
    {
      oneOf: [
        closed({ kind: { const: "a" }, size: { type: "integer" } }, "kind"),
        closed({ kind: { enum: ["b", "c"] }, name: text }, "kind"),
        { $ref: "#/$defs/third" },
      ],
      $defs: { third: closed({ kind: { const: "d" } }, "kind") },
    },
    [
      { kind: "a", size: 1 },
      { kind: "b", name: "x" },
      { kind: "c" },
      { kind: "d" },
      { kind: "a", name: "x" },
      { kind: "e" },
    ],
  ],
  [
    "one of two properties",
    {
      type: "object",
      properties: { id: text, url: text, note: text },
      oneOf: [{ required: ["id"] }, { required: ["url"] }],
      additionalProperties: false,
    },
    [{ id: "1" }, { url: "1" }, { id: "1", url: "1" }, { note: "1" }, { id: "1", note: "" }],
  ],
  [
    "three properties of which exactly one is there",
    {
      type: "object",
      properties: { a: text, b: text, c: text },
      oneOf: [{ required: ["a"] }, { required: ["b"] }, { required: ["c"] }],
    },
    [{ a: "" }, { b: "" }, { c: "" }, {}, { a: "", b: "" }, { a: "", b: "", c: "" }],
  ],
  [
    "closed objects that share a property",
    { oneOf: [closed({ a: text, b: text }, "a"), closed({ a: text, c: text }, "a")] },
    [{ a: "" }, { a: "", b: "" }, { a: "", c: "" }],
  ],
  [
    "oneOf beside anyOf",
    {
      oneOf: [
        { type: "integer", minimum: 2 },
        { type: "integer", maximum: 4 },
      ],
      anyOf: [{ type: "integer", minimum: 4 }, { const: 1 }],
    },
    [1, 0, 2, 4, 5],
  ],
  [
    "oneOf in a part of allOf",
    { allOf: [{ type: "integer" }, { oneOf: [{ minimum: 2 }, { maximum: 4 }] }] },
    [1, 2, 3, 4, 5],
  ],
  ["an alternative that allows all of another", { oneOf: [{ type: "integer" }, { const: 3 }, text] }, [3, 4, "a"]],
])("%s", ([, schema, values]) => {
  const { ours, ofAjv } = verdictsOf(schema, values);
  expect(new Set(ofAjv.map(({ isAllowed }) => isAllowed)).size).toBe(2);
  expect(ours).toEqual(ofAjv);
});

test.for<[string, object, readonly unknown[]]>([
  [
    "a multiple of two or of three",
    {
      oneOf: [
        { type: "integer", multipleOf: 2, minimum: 0 },
        { type: "integer", multipleOf: 3, minimum: 0 },
      ],
    },
    [2, 3, 6],
  ],
  ["twice the same", { oneOf: [text, text] }, ["a"]],
])("alternatives that cannot be told apart are treated as anyOf: %s", ([, schema, values]) => {
  const reader = readerOf(schema);
  expect(values.filter((value) => isWhole(reader, value))).toEqual(values);
});

test("an alternative does not generate the properties of another one", () => {
  const object = (properties: object, ...required: string[]): object => ({ type: "object", properties, required });
  const reader = readerOf({ oneOf: [object({ a: text }, "a"), object({ b: { type: "integer" } }, "b")] });
  expect([{ a: "" }, { b: 1 }, { a: "", b: "" }, { a: "", b: 1 }].map((value) => isWhole(reader, value))).toEqual([
    true,
    true,
    false,
    false,
  ]);
});

function isTooLarge(schema: object): boolean {
  const json: unknown = JSON.parse(JSON.stringify(schema));
  try {
    checkSchema(json, "json", createSchemaCheck(json, true));
    return false;
  } catch (error) {
    return String(error).includes("too large");
  }
}

/** Every object with these properties. */
const objects = [undefined, "x", "y"].flatMap((a) =>
  [undefined, 0, 1, 2, 3].flatMap((b) => [undefined, true, false].map((c) => ({ a, b, c }))),
);
const option = fc
  .record(
    {
      required: fc.uniqueArray(fc.constantFrom("a", "b", "c")),
      a: fc.constantFrom<object>({ const: "x" }, { enum: ["x", "y"] }),
      b: fc.constantFrom<object>({ minimum: 2 }, { maximum: 1 }, { const: 1 }, { exclusiveMaximum: 3 }),
      c: fc.constantFrom<object | false>({ const: true }, false),
      type: fc.constant("object"),
    },
    { requiredKeys: [] },
  )
  .map(({ required, type, ...properties }) => ({ type, required, properties }));

test("random alternatives allow exactly the objects that Ajv finds valid", () => {
  const base = {
    type: "object",
    properties: { a: { enum: ["x", "y"] }, b: { type: "integer", minimum: 0, maximum: 3 }, c: { type: "boolean" } },
    required: [],
  };
  let [numAllowed, numForbidden] = [0, 0];
  fc.assert(
    fc.property(fc.array(option, { minLength: 2, maxLength: 3 }), (oneOf) => {
      const schema = { ...base, oneOf };
      const isValid = new Ajv2020({ strict: false, validateSchema: false }).compile(JSON.parse(JSON.stringify(schema)));
      const verdicts = objects.map((object) => isValid(JSON.parse(JSON.stringify(object))));
      // A schema without a value, or with too many parts, is treated as anyOf.
      fc.pre(verdicts.some(Boolean) && !isTooLarge(schema));
      const reader = readerOf(schema);
      for (const [index, object] of objects.entries())
        expect([schema, object, isWhole(reader, object)]).toEqual([schema, object, verdicts[index]]);
      numAllowed += verdicts.filter(Boolean).length;
      numForbidden += verdicts.filter((isAllowed) => !isAllowed).length;
    }),
    { numRuns: 80 },
  );
  expect(Math.min(numAllowed, numForbidden)).toBeGreaterThan(100);
});
