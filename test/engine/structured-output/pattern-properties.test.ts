/** Properties by patterns beside others allow the values that Ajv finds valid. */
import { expect, test } from "vitest";

import { isWhole, readerOf, verdictsOf } from "./schema-readers.ts";

const integer = { type: "integer" };
const text = { type: "string" };

test.for<[string, object, readonly unknown[]]>([
  [
    "a described property that matches a pattern",
    { properties: { foo: { minimum: 2 } }, patternProperties: { "^f": { type: "integer", maximum: 4 } } },
    [{ foo: 3 }, { foo: 1 }, { foo: 5 }, { fa: 4 }, { foo: 3, fa: -1 }, { foo: 3, fa: 5 }],
  ],
  [
    "overlapping patterns",
    {
      patternProperties: { "^a": { minimum: 2, maximum: 9 }, b$: { minimum: 0, maximum: 5 } },
      additionalProperties: false,
    },
    [{ a: 9 }, { b: 5 }, { ab: 4 }, { ab: 6 }, { ab: 1 }, { b: 9 }, { c: 1 }],
  ],
  [
    "patterns that begin differently",
    { patternProperties: { "^s_": text, "^i_": integer }, additionalProperties: false },
    [{ s_a: "x", i_b: 1 }, { s_a: 1 }, { i_b: "x" }, { o: 1 }],
  ],
  [
    "required names by pattern and by others",
    { patternProperties: { "^s": text }, required: ["sa", "o"], additionalProperties: integer },
    [{ sa: "x", o: 1 }, { sa: "x" }, { o: 1 }, { sa: 1, o: 1 }, { sa: "x", o: "x" }, { sa: "x", o: 1, sb: "y", p: 2 }],
  ],
  [
    "other properties beside patterns",
    { properties: { a: text }, patternProperties: { "^x-": true }, additionalProperties: integer },
    [{ a: "x", "x-b": null, c: 1 }, { a: 1 }, { c: "x" }, { "x-b": [] }],
  ],
  [
    "a pattern whose values do not exist",
    { patternProperties: { "^a": integer, b: false } },
    [{ a: 1 }, { ab: 1 }, { b: 1 }, {}],
  ],
])("%s", ([, keywords, values]) => {
  const { ours, ofAjv } = verdictsOf({ type: "object", ...keywords }, values);
  expect(ours).toEqual(ofAjv);
});

test("a name never comes twice with different schemas", () => {
  const reader = readerOf({ type: "object", properties: { foo: text }, patternProperties: { "^f": true } });
  expect(reader.judge(Buffer.from('{"foo": "x", "foo"'))).toBe("none");
  expect(reader.judge(Buffer.from('{"foo": "x", "fo": 1}'))).toBe("whole");
});

test("a required name that neither a pattern nor another property allows is rejected", () => {
  const schema = { type: "object", patternProperties: { "^a": text }, additionalProperties: false, required: ["b"] };
  expect(() => readerOf(schema)).toThrow("requires the property b, which is not one of its properties");
});

test("more than 500 patterns are rejected", () => {
  const schemaOf = (numPatterns: number): object => ({
    type: "object",
    patternProperties: Object.fromEntries(Array.from({ length: numPatterns }, (_, index) => [`^p${index}_`, text])),
  });
  expect(() => readerOf(schemaOf(501))).toThrow("patternProperties up to json have more than 500 patterns");
  expect(isWhole(readerOf(schemaOf(500)), { p499_a: "x" })).toBe(true);
});
