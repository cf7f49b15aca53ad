/* oxlint-disable unicorn/no-thenable -- A keyword of JSON Schema. */
/** Schemas with conditions, and those of older drafts, allow exactly the values that Ajv finds valid. */
import { Ajv } from "ajv";
import { Ajv2020 } from "ajv/dist/2020.js";
import * as fc from "fast-check";
import { expect, test } from "vitest";

import { compileProgram } from "../../../engine/structured-output/compiled-grammar.ts";
import { checkJsonSchema } from "../../../engine/structured-output/json-schema.ts";
import type { Reader } from "./grammars.ts";
import { isWhole, readerOf, verdictsOf } from "./schema-readers.ts";

const text = { type: "string" };
const place = {
  type: "object",
  properties: { country: { enum: ["US", "CA", "FR"] }, zip: text, post: { type: "integer" } },
  required: ["country"],
};
const countryIs = (country: string): object => ({ properties: { country: { const: country } }, required: ["country"] });

test.for<[string, object, readonly unknown[]]>([
  [
    "if, then and else",
    { ...place, if: countryIs("US"), then: { required: ["zip"] }, else: { required: ["post"] } },
    [
      { country: "US", zip: "1" },
      { country: "US", post: 1 },
      { country: "CA", post: 1 },
      { country: "CA", zip: "1" },
    ],
  ],
  [
    "several conditions on one property",
    {
      ...place,
      allOf: [
        { if: countryIs("US"), then: { required: ["zip"] } },
        { if: countryIs("CA"), then: { required: ["post"] } },
        { if: countryIs("FR"), then: { properties: { zip: false } } },
      ],
    },
    [
      { country: "US", zip: "1" },
      { country: "US" },
      { country: "CA", zip: "1", post: 1 },
      { country: "CA", zip: "1" },
      { country: "FR", post: 1 },
      { country: "FR", zip: "1" },
    ],
  ],
  [
    "dependentRequired",
    { ...place, dependentRequired: { zip: ["post"], post: ["zip"] } },
    [{ country: "FR" }, { country: "FR", zip: "1" }, { country: "FR", post: 1 }, { country: "FR", zip: "", post: 1 }],
  ],
  [
    "dependentSchemas",
    { ...place, dependentSchemas: { zip: { properties: { post: { maximum: 5 } } } } },
    [
      { country: "FR", post: 9 },
      { country: "FR", zip: "1", post: 9 },
      { country: "FR", zip: "1", post: 5 },
    ],
  ],
  ["a string other than some", { ...text, not: { enum: ["a", "ab", 1] } }, ["", "a", "ab", "abc", "b", 1]],
  ["a string that is not constant", { ...text, not: { const: "none" } }, ["none", "non", "nonet", "NONE"]],
  ["an integer other than some", { type: "integer", not: { enum: [0, 5, 7] }, maximum: 8 }, [-1, 0, 5, 6, 7, 8, 9]],
  ["a number that is not zero", { type: "number", not: { const: 0 } }, [0, 0.5, -0.001, 3]],
  ["another type", { not: { type: ["string", "object", "array"] } }, [1, null, true, "a", {}, []]],
  ["any value but null", { not: { const: null } }, [null, 1, "a", [], {}, false]],
  ["a boolean that is not true", { type: "boolean", not: { const: true } }, [true, false]],
  ["no property of a name", { ...place, not: { required: ["zip"] } }, [{ country: "US", zip: "1" }, { country: "US" }]],
  [
    "neither of two",
    { ...place, not: { anyOf: [{ required: ["zip"] }, countryIs("FR")] } },
    [{ country: "US" }, { country: "FR" }, { country: "US", zip: "1" }],
  ],
  ["not not", { not: { not: { type: "integer", minimum: 3 } } }, [3, 2, "a"]],
  ["a bound that is negated", { type: "integer", not: { minimum: 3 } }, [2, 3, -9]],
  ["lengths that are negated", { ...text, not: { minLength: 3 } }, ["ab", "abc", ""]],
  [
    "a property that never is",
    { ...place, properties: { ...place.properties, zip: { not: {} } } },
    [
      { country: "US", post: 1 },
      { country: "US", zip: "1" },
    ],
  ],
  [
    "an alternative that no value matches",
    { anyOf: [false, { type: "null" }, { allOf: [text, { type: "null" }] }] },
    [null, "a"],
  ],
  [
    "different items",
    {
      type: "array",
      uniqueItems: true,
      items: { $ref: "#/$defs/color" },
      minItems: 1,
      maxItems: 3,
      $defs: { color: { type: "string", enum: ["red", "green", "blue", "red", 1] } },
    },
    [[], ["red"], ["blue", "red"], ["red", "red"], ["green", "blue", "red"], ["red", "blue", "red"], [1]],
  ],
  [
    "different items of several kinds",
    {
      type: "array",
      uniqueItems: true,
      items: { anyOf: [{ type: ["boolean", "null"] }, { const: { a: 1, b: [2] } }] },
    },
    [
      [],
      [true, null, false],
      [null, null],
      [{ a: 1, b: [2] }, true],
      [
        { a: 1, b: [2] },
        { a: 1, b: [2] },
      ],
    ],
  ],
  [
    "more different items than there are",
    { anyOf: [{ type: "array", uniqueItems: true, minItems: 3, items: { enum: [1, 2] } }, { const: 1 }] },
    [1, [1, 2], [1, 2, 1]],
  ],
  ["items that may be equal", { type: "array", items: text, uniqueItems: false }, [["a", "a"], [1]]],
  ["one item", { type: "array", items: text, uniqueItems: true, maxItems: 1 }, [["a"], [], ["a", "b"]]],
  ["items that cannot be", { type: "array", items: false }, [[], [1]]],
  [
    "constants beside other keywords",
    { type: "string", enum: ["a", "abc", null, 4], maxLength: 2 },
    ["a", "abc", null, 4],
  ],
  [
    "constants of two parts",
    { allOf: [{ enum: [1, 2, 3] }, { enum: [2, 3, 4] }, { not: { const: 3 } }] },
    [1, 2, 3, 4],
  ],
  [
    "anyOf twice",
    { allOf: [{ anyOf: [{ const: 1 }, { const: 2 }] }, { anyOf: [{ const: 2 }, { const: 3 }] }] },
    [1, 2, 3],
  ],
])("%s", ([, schema, values]) => {
  const { ours, ofAjv } = verdictsOf(schema, values);
  expect(new Set(ofAjv.map(({ isAllowed }) => isAllowed)).size).toBe(2);
  expect(ours).toEqual(ofAjv);
});

test.for<[string, object, readonly unknown[]]>([
  [
    "a list of items and additional ones",
    { type: "array", items: [{ type: "boolean" }, text], additionalItems: { type: "null" } },
    [
      [true, "a"],
      [true, "a", null],
      [true, 1],
      [true, "a", 1],
    ],
  ],
  ["a closed list of items", { type: "array", items: [text], additionalItems: false }, [["a"], ["a", "b"]]],
  [
    "dependencies",
    { ...place, dependencies: { zip: ["post"], post: { properties: { post: { minimum: 1 } } } } },
    [
      { country: "US", zip: "1", post: 1 },
      { country: "US", zip: "1" },
      { country: "US", post: 0 },
    ],
  ],
])("draft 7: %s", ([, schema, values]) => {
  const reader = readerOf(schema);
  const isValid = new Ajv({ strict: false }).compile(schema);
  expect(values.map((value) => [value, isWhole(reader, value)])).toEqual(
    values.map((value) => [value, isValid(value)]),
  );
});

test("draft 4: excluded bounds are flags", () => {
  const reader = readerOf({
    type: "integer",
    minimum: 3,
    exclusiveMinimum: true,
    maximum: 6,
    exclusiveMaximum: false,
  });
  expect([2, 3, 4, 6, 7].filter((value) => isWhole(reader, value))).toEqual([4, 6]);
});

test.for<[string, object, string]>([
  ["no value at all", { not: {} }, "json allows no value"],
  [
    "a required property that is forbidden",
    { properties: { a: false }, required: ["a"] },
    "json.properties.a allows no",
  ],
  ["constants that other keywords forbid", { enum: [{}], required: ["a"] }, "json has no constant in enum that its"],
  [
    "a negated pattern",
    { type: "object", not: { patternProperties: { a: {} } } },
    "json.not has the keyword patternProperties, which is not supported within not and if",
  ],
  [
    "different texts",
    { type: "array", items: text, uniqueItems: true },
    "json has uniqueItems, which is supported only",
  ],
  [
    "too many different items",
    { type: "array", items: { enum: Array.from({ length: 40 }, (_, index) => index) }, uniqueItems: true },
    "json has uniqueItems with 40 values whose orders take too many parts; lower maxItems",
  ],
  ["a negated integer", { if: { type: "integer" }, then: { maximum: 3 } }, "json.if.type negates the type integer"],
  ["a string of a form other than some", { ...text, format: "date", not: { const: "a" } }, "keywords not and format"],
])("%s is rejected with the reason", ([, schema, reason]) => {
  const compile = (): unknown => {
    checkJsonSchema(JSON.stringify(schema));
    return compileProgram({ kind: "json-schema", schema: JSON.stringify(schema) });
  };
  expect(compile).toThrow(reason);
});

/** A text is the reason why there is none. */
function readerOrReason(schema: object): Reader | string {
  try {
    return readerOf(schema);
  } catch (error) {
    return String(error);
  }
}

/** Every object with these properties. */
const objects = [undefined, "x", "y"].flatMap((a) =>
  [undefined, 0, 1, 2, 3].flatMap((b) => [undefined, true, false].map((c) => ({ a, b, c }))),
);

/** Properties come in the order in which the parts of a schema mention them. */
function ordersOf({ a, b, c }: (typeof objects)[number]): object[] {
  return [
    { a, b, c },
    { a, c, b },
    { b, a, c },
    { b, c, a },
    { c, a, b },
    { c, b, a },
  ];
}

const name = fc.constantFrom("a", "b", "c");
const simple: fc.Arbitrary<object> = fc.oneof(
  fc.record({ required: fc.uniqueArray(name, { minLength: 1 }) }),
  fc
    .constantFrom<object>(
      { a: { const: "x" } },
      { a: { enum: ["y", "z"] } },
      { b: { minimum: 2 } },
      { b: { exclusiveMaximum: 1 } },
      { b: { const: 1 } },
      { c: { const: true } },
      { c: false },
    )
    .chain((properties) => fc.constantFrom<object>({ properties }, { properties, required: Object.keys(properties) })),
);
const { condition } = fc.letrec<{ condition: object }>((tie) => ({
  condition: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    simple,
    fc.record({ not: tie("condition") }),
    fc.record({ anyOf: fc.array(tie("condition"), { minLength: 1, maxLength: 2 }) }),
    fc.record({ allOf: fc.array(tie("condition"), { minLength: 1, maxLength: 2 }) }),
    fc.record({ if: tie("condition"), then: tie("condition"), else: tie("condition") }, { requiredKeys: ["if"] }),
    fc.record({ dependentRequired: fc.dictionary(name, fc.uniqueArray(name), { maxKeys: 2 }) }),
    fc.record({ dependentSchemas: fc.dictionary(name, tie("condition"), { maxKeys: 2 }) }),
  ),
}));

test("random conditions allow exactly the objects that Ajv finds valid", () => {
  const base = {
    type: "object",
    properties: { a: { enum: ["x", "y"] }, b: { type: "integer", minimum: 0, maximum: 3 }, c: { type: "boolean" } },
  };
  let [numAllowed, numForbidden] = [0, 0];
  fc.assert(
    fc.property(fc.uniqueArray(name), condition, (required, further) => {
      const schema = { ...base, allOf: [{ required }, further] };
      const isValid = new Ajv2020({ strict: false, validateSchema: false }).compile(schema);
      const verdicts = objects.map((object) => isValid(JSON.parse(JSON.stringify(object))));
      const reader = readerOrReason(schema);
      const reason = typeof reader === "string" ? reader : null;
      fc.pre(reason === null || !/too (?:large|deeply)/.test(reason));
      for (const [index, object] of objects.entries()) {
        // Any other error says that no object is allowed.
        const isAllowed = typeof reader !== "string" && ordersOf(object).some((ordered) => isWhole(reader, ordered));
        expect([schema, object, isAllowed, reason]).toEqual([schema, object, verdicts[index], reason]);
      }
      numAllowed += verdicts.filter(Boolean).length;
      numForbidden += verdicts.filter((isAllowed) => !isAllowed).length;
    }),
    { numRuns: 120 },
  );
  expect(Math.min(numAllowed, numForbidden)).toBeGreaterThan(100);
});
