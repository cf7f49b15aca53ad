/** Lists with `contains` are exactly those that Ajv finds valid. */
import { Ajv2020 } from "ajv/dist/2020.js";
import * as fc from "fast-check";
import { expect, test } from "vitest";

import type { Reader } from "./grammars.ts";
import { isWhole, readerOf } from "./schema-readers.ts";

/** Null for a schema that no list matches. */
function readerOrNull(schema: object): Reader | null {
  try {
    return readerOf(schema);
  } catch (error) {
    if (
      /no list with so many|allows no value|no type satisfies|different constants|common constant|has no constant in|which is more than|requires at|exclude each other/.test(
        String(error),
      )
    )
      return null;
    throw error;
  }
}

const values = [1, 2, 3, "a"];
const lists: unknown[][] = [[]];
for (const list of lists) if (list.length < 4) lists.push(...values.map((value) => list.concat(value)));

const small = fc.integer({ min: 0, max: 3 });
const schemas = fc
  .record(
    {
      items: fc.constantFrom<object | boolean>(true, { enum: [1, 2, 3, "a"] }, { type: "integer", maximum: 3 }),
      contains: fc.constantFrom<object | boolean>(
        { const: 1 },
        { type: "string" },
        { type: "number", minimum: 2 },
        { enum: [1, "a"] },
        true,
        false,
      ),
      minContains: small,
      maxContains: small,
      minItems: small,
      maxItems: small,
    },
    { requiredKeys: ["contains"] },
  )
  .map((keywords): object => Object.assign({ type: "array" }, keywords));

test("random counts allow exactly the lists that Ajv finds valid", () => {
  let [numAllowed, numForbidden] = [0, 0];
  fc.assert(
    fc.property(schemas, (schema) => {
      const isValid = new Ajv2020({ strict: false }).compile(schema);
      const reader = readerOrNull(schema);
      for (const list of lists) {
        const isAllowed = isValid(list);
        expect([schema, list, isWhole(reader, list)]).toEqual([schema, list, isAllowed]);
        if (isAllowed) numAllowed++;
        else numForbidden++;
      }
    }),
    { numRuns: 60 },
  );
  expect(Math.min(numAllowed, numForbidden)).toBeGreaterThan(100);
});

test("first items are counted too", () => {
  const schema = {
    type: "array",
    prefixItems: [{ type: "string" }, { type: "integer" }],
    items: { type: "integer" },
    contains: { const: 1 },
    maxContains: 2,
  };
  const reader = readerOf(schema);
  const isValid = new Ajv2020({ strict: false }).compile(schema);
  for (const list of lists.filter(({ length }) => length >= 2))
    expect([list, isWhole(reader, list)]).toEqual([list, isValid(list)]);
  expect(isWhole(reader, ["a", 1])).toBe(true);
});

test("an agent's plan has one final step among others", () => {
  const step = {
    type: "object",
    properties: { kind: { enum: ["search", "final"] }, text: { type: "string" } },
    required: ["kind", "text"],
    additionalProperties: false,
  };
  const final = { type: "object", properties: { kind: { const: "final" } }, required: ["kind"] };
  const reader = readerOf({ type: "array", items: step, contains: final, maxContains: 1, maxItems: 3 });
  const [search, end] = ["search", "final"].map((kind) => ({ kind, text: "" }));
  expect([[search, end], [end], [search, search, end]].map((list) => isWhole(reader, list))).toEqual([
    true,
    true,
    true,
  ]);
  expect([[], [search], [end, end], [search, end, search, search]].map((list) => isWhole(reader, list))).toEqual([
    false,
    false,
    false,
    false,
  ]);
});

test.for<[string, object, string]>([
  ["large bounds", { contains: { const: 1 }, minContains: 300, minItems: 300 }, "take too many parts"],
  ["uniqueItems", { contains: { const: 1 }, uniqueItems: true }, "contains and uniqueItems together"],
  ["a count that cannot be", { contains: { const: 1 }, minContains: 3, maxItems: 2 }, "no list with so many items"],
  ["a negated format", { contains: { format: "date" }, maxContains: 1 }, "keyword format, which is not supported"],
])("contains with %s is rejected", ([, keywords, reason]) => {
  expect(() => readerOf({ type: "array", ...keywords })).toThrow(reason);
});
