/** Formats of strings, beside the verdicts of ajv-formats. */
import addFormats from "ajv-formats";
import { Ajv2020 } from "ajv/dist/2020.js";
import { expect, test } from "vitest";

import { patternsByFormat } from "../../../engine/structured-output/json-format.ts";
import { compileOnce, shapesVocabulary, walk } from "./grammars.ts";
import { isWhole, readerOf } from "./schema-readers.ts";

const ajv = new Ajv2020({ strict: false });
addFormats.default(ajv);

test.for(Array.from(patternsByFormat.keys()))("every text of the format %s is one for Ajv", async (format) => {
  // Bounded, because random walks may not end.
  const schema = { type: "string", format, maxLength: 60 };
  const isValid = ajv.compile(schema);
  const grammar = await compileOnce(shapesVocabulary, { kind: "json-schema", schema: JSON.stringify(schema) });
  const texts = Array.from(walk(grammar, shapesVocabulary, 60), (bytes) => Buffer.from(bytes).toString());
  expect(texts.filter((text) => !isValid(JSON.parse(text)))).toEqual([]);
});

test.for<[string, readonly string[], readonly string[]]>([
  [
    "date",
    ["2024-02-29", "2000-02-29", "2023-02-28", "2024-12-31", "2024-04-30"],
    ["2023-02-29", "1900-02-29", "2024-02-30", "2024-04-31", "2024-13-01", "2024-00-10", "2024-01-00", "2024-01-32"],
  ],
  [
    "time",
    ["23:59:60Z", "23:59:60.5+00:00", "08:30:06.28-08:00"],
    ["22:59:60Z", "23:58:60Z", "23:59:60+01:00", "8:30"],
  ],
  [
    "date-time",
    ["2016-12-31T23:59:60Z", "2024-02-29T00:00:00+14:00"],
    ["2024-02-30T00:00:00Z", "2024-01-01T10:00:60Z"],
  ],
  ["email", ["a.b+c@mail.example.com"], ["a@localhost", '"a b"@example.com', "a..b@example.com", "a@-x.com"]],
  ["hostname", ["a", `${"a".repeat(63)}.b`], [`${"a".repeat(64)}.b`, `${"a.".repeat(130)}a`, "a_b", "-a"]],
  [
    "ipv6",
    ["1::d6:192.168.0.1", "1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5::1.2.3.4"],
    ["1:2:3:4:5:6::1.2.3.4", "::1:", "12345::"],
  ],
  ["uri", ["ldap://[2001:db8::7]/c=GB?one", "urn:a", "a:/"], ["a:", "a:?b", "//a", "http://[1]/"]],
])("the format %s allows and forbids the same as Ajv", ([format, whole, others]) => {
  const schema = { type: "string", format };
  const isValid = ajv.compile(schema);
  const reader = readerOf(schema);
  for (const [texts, isAllowed] of [[whole, true] as const, [others, false] as const]) {
    for (const text of texts) {
      expect([text, isWhole(reader, text), isValid(text)]).toEqual([text, isAllowed, isAllowed]);
    }
  }
});

test("a hostname may be bounded further", () => {
  const reader = readerOf({ type: "string", format: "hostname", maxLength: 3 });
  expect(["a.b", "a.bc"].map((text) => isWhole(reader, text))).toEqual([true, false]);
});

test.for<readonly [object, readonly string[], readonly string[]]>([
  [
    { allOf: [{ enum: [true, '"q"', "/", "a@b.example"] }, { type: "string", format: "email" }] },
    ["a@b.example"],
    ["/"],
  ],
  [{ enum: ["2024-02-29", "2023-02-29", null], format: "date" }, ["2024-02-29"], ["2023-02-29"]],
  [{ enum: ["WWW.Example.com", "-"], format: "hostname" }, ["WWW.Example.com"], ["-"]],
  [{ enum: ["any", ""], format: "password" }, ["any", ""], []],
])("constants without the format are left out: %j", ([schema, whole, others]) => {
  const isValid = ajv.compile(schema);
  const reader = readerOf(schema);
  for (const [texts, isAllowed] of [[whole, true] as const, [others, false] as const]) {
    for (const text of texts) {
      expect([text, isWhole(reader, text), isValid(text)]).toEqual([text, isAllowed, isAllowed]);
    }
  }
});

test("constants of which none has the format are rejected", () => {
  const schema = { const: "x", format: "uuid" };
  expect(() => readerOf(schema)).toThrow("no constant in const that its other keywords allow");
});
