/** Schemas of several parts allow the values that Ajv finds valid. */
import { Ajv2020 } from "ajv/dist/2020.js";
import { expect, test } from "vitest";

import { checkJsonSchema } from "../../../engine/structured-output/json-schema.ts";
import { Reader } from "./grammars.ts";

const objectOf = (properties: object, required: readonly string[] = []) => ({ type: "object", properties, required });
const text = { type: "string" };
const integer = { type: "integer" };

test.for<[string, object, readonly unknown[], readonly unknown[]]>([
  [
    "a base and an extension",
    {
      allOf: [{ $ref: "#/$defs/base" }, objectOf({ c: integer }, ["c"])],
      $defs: { base: objectOf({ a: text }, ["a"]) },
    },
    [{ a: "x", c: 1 }],
    [{ a: "x" }, { c: 1 }, { a: 1, c: 1 }],
  ],
  [
    "a base and properties beside it",
    {
      allOf: [{ $ref: "#/$defs/base" }],
      properties: { c: integer },
      unevaluatedProperties: false,
      $defs: { base: objectOf({ a: text }, ["a"]) },
    },
    [{ a: "x", c: 1 }, { a: "x" }],
    [{ a: "x", d: 1 }, { c: 1 }],
  ],
  [
    "one of two required properties",
    { ...objectOf({ a: integer, b: integer }), anyOf: [{ required: ["a"] }, { required: ["b"] }] },
    [{ a: 1 }, { b: 1 }, { a: 1, b: 2 }],
    [{}],
  ],
  [
    "a discriminator beside its variants",
    {
      ...objectOf({ t: text }, ["t"]),
      oneOf: [
        { properties: { t: { const: "a" }, x: integer }, required: ["x"] },
        { properties: { t: { const: "b" } } },
      ],
    },
    [{ t: "a", x: 1 }, { t: "b" }],
    [{ t: "a" }, { t: "c" }],
  ],
  [
    "keywords beside a reference",
    {
      $ref: "#/$defs/base",
      minProperties: 1,
      required: ["b"],
      $defs: { base: objectOf({ a: text, b: { type: "null" } }) },
    },
    [{ a: "x", b: null }, { b: null }],
    [{ a: "x" }, {}],
  ],
  ["bounds", { allOf: [{ ...text, minLength: 2 }, { maxLength: 3 }, { minLength: 1 }] }, ["ab", "abc"], ["a", "abcd"]],
  ["lists of types", { allOf: [{ type: ["integer", "null"] }, { type: ["number", "null"] }] }, [1, null], [1.5, "a"]],
  [
    "two schemas of one property",
    { allOf: [objectOf({ a: { ...integer, minimum: 3 } }), objectOf({ a: { ...integer, maximum: 5 }, b: {} })] },
    [{ a: 4 }, { a: 3, b: 1 }],
    [{ a: 2 }, { a: 6 }],
  ],
  [
    "two schemas of items",
    {
      allOf: [
        { type: "array", items: { minLength: 1 } },
        { items: { ...text, maxLength: 2 }, minItems: 1 },
      ],
    },
    [["a"], ["ab", "a"]],
    [[""], ["abc"], []],
  ],
  [
    "parts that contain the schema again",
    {
      $ref: "#/$defs/node",
      $defs: { node: { allOf: [objectOf({ v: integer }, ["v"]), objectOf({ next: { $ref: "#/$defs/node" } })] } },
    },
    [{ v: 1 }, { v: 1, next: { v: 2, next: { v: 3 } } }],
    [{ v: 1, next: {} }, { next: { v: 1 } }],
  ],
  [
    "a part that is the schema itself",
    { allOf: [{ $ref: "#" }, { ...objectOf({ a: integer }, ["a"]) }, true] },
    [{ a: 1 }],
    [{}],
  ],
  [
    "names of properties",
    { type: "object", propertyNames: { allOf: [{ maxLength: 2 }, { pattern: "^a" }] }, additionalProperties: integer },
    [{ a: 1 }, { ab: 1 }],
    [{ b: 1 }, { abc: 1 }],
  ],
  ["a type beside a reference", { ...text, $ref: "#/$defs/any", $defs: { any: {} } }, ["a"], [1, {}, null]],
  ["a type beside alternatives", { ...text, anyOf: [{ minLength: 3 }, { enum: ["a", 1] }] }, ["abc", "a"], [1, "ab"]],
  ["alternatives of which the type leaves one", { ...integer, oneOf: [{ type: "number" }, text] }, [1], [1.5, "a"]],
  ["constants of several types", { allOf: [{ enum: [1, "a"] }], ...integer }, [1], ["a"]],
  [
    "alternatives within an object that is closed around them",
    {
      ...objectOf({ a: integer }),
      unevaluatedProperties: false,
      anyOf: [objectOf({ b: text }, ["b"]), { required: ["a"] }],
    },
    [{ a: 1 }, { b: "x" }, { a: 1, b: "x" }],
    [{}, { a: 1, c: 1 }],
  ],
])("%s", ([, schema, valid, invalid]) => {
  const json = JSON.stringify(schema);
  checkJsonSchema(json);
  const reader = new Reader({ kind: "json-schema", schema: json });
  // It calls itself without end for a schema that refers to itself as a part.
  const isValid = json.includes('"#"') ? null : new Ajv2020({ strict: false }).compile(schema);
  for (const value of [...valid, ...invalid]) {
    const expected = valid.includes(value);
    expect([value, isValid?.(value) ?? expected]).toEqual([value, expected]);
    expect([value, reader.judge(Buffer.from(JSON.stringify(value))) === "whole"]).toEqual([value, expected]);
  }
});

test.for<[string, object, string]>([
  [
    "further properties that a pattern of another part describes",
    { allOf: [{ type: "object", additionalProperties: text }, { patternProperties: { "^x": integer } }] },
    "a part with additionalProperties beside a part with other patternProperties",
  ],
  [
    "items whose first ones another part describes",
    { allOf: [{ type: "array", prefixItems: [text] }, { items: integer }] },
    "a part with items beside a part with other prefixItems",
  ],
  [
    "a closed part and properties beside it",
    { allOf: [{ ...objectOf({ a: integer }), unevaluatedProperties: false }, objectOf({ b: integer })] },
    "does not list the property b",
  ],
  ["a constant of another type", { ...integer, const: "a" }, "has no constant in const that its other keywords allow"],
  [
    "alternatives of other types",
    { ...integer, anyOf: [text, { type: "null" }] },
    "json.anyOf.0 has parts that no type satisfies together",
  ],
])("%s are rejected", ([, schema, problem]) => {
  expect(() => {
    const json = JSON.stringify(schema);
    checkJsonSchema(json);
    return new Reader({ kind: "json-schema", schema: json });
  }).toThrow(problem);
});
