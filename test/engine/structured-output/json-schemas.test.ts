/** Texts that a JSON Schema allows or forbids. */
import { describe, expect, test } from "vitest";
import { z } from "zod";

import { checkJsonSchema } from "../../../engine/structured-output/json-schema.ts";
import { Reader } from "./grammars.ts";

function judge(schema: unknown, text: string): string {
  return new Reader({ kind: "json-schema", schema: JSON.stringify(schema) }).judge(Buffer.from(text));
}

describe("properties beside described ones", () => {
  const schema = {
    type: "object",
    properties: { a: { type: "integer" }, ab: { type: "null" }, 'é"\n': { type: "boolean" } },
    additionalProperties: { type: "string" },
  };

  test.for([
    '{"a": 1, "ab": null, "b": "x"}',
    '{"b": "x", "ac": "x", "": "x", "abc": "x", "é": "x", "b": "x"}',
    '{"a\\"": "x", "é\\"": "x", "é\\"\\n\\n": "x", "\\u0001": "x"}',
  ])("may be %s", (text) => {
    expect(judge(schema, text)).toBe("whole");
  });

  test.for([
    '{"a": "x"',
    '{"b": "x", "a": "x"',
    '{"a": 1, "a": "x"',
    '{"\\u0061": "x"',
    '{"ab": "x"',
    '{"é\\"\\n": "x"',
    '{"é\\u0022\\n": "x"',
  ])("cannot be %s", (text) => {
    expect(judge(schema, text)).toBe("none");
  });

  test("a property that is required without a schema comes once", () => {
    const required = { type: "object", required: ["a"], minProperties: 2 };
    expect(judge(required, '{"a": 1, "b": 2}')).toBe("whole");
    expect(judge(required, '{"a": 1, "a": 2')).toBe("none");
  });

  test("long names that begin alike are told apart", () => {
    const name = "name".repeat(20);
    const long = { properties: { [`${name}1`]: { type: "null" } }, additionalProperties: { type: "integer" } };
    expect(judge(long, `{"${name}": 1, "${name}2": 1, "${name}12": 1}`)).toBe("whole");
    expect(judge(long, `{"${name}1": 1`)).toBe("none");
  });
});

test.for<[string, object, readonly string[], readonly string[]]>([
  ["a reference", { $ref: "#/$defs/name" }, ['{"a": 1}'], ['{"b"', "{1"]],
  ["alternatives", { anyOf: [{ maxLength: 1 }, { $ref: "#/$defs/name" }] }, ['{"a": 1, "b": 1}'], ["{1", '{"bb']],
  ["one of all", { allOf: [{}] }, ['{"any": 1}'], ["{1", "{null"]],
])("names of properties are strings, also those of %s", ([, propertyNames, whole, none]) => {
  const schema = {
    type: "object",
    propertyNames,
    additionalProperties: { type: "integer" },
    $defs: { name: { enum: ["a", 1] } },
  };
  for (const text of whole) expect([text, judge(schema, text)]).toEqual([text, "whole"]);
  for (const text of none) expect([text, judge(schema, text)]).toEqual([text, "none"]);
});

test.for<[string, string]>([
  ["List<string>", "#/$defs/List%3Cstring%3E"],
  ["List%3Cstring%3E", "#/$defs/List%3Cstring%3E"],
  ["100%", "#/$defs/100%"],
  ["a/b é", "#/$defs/a~1b%20%C3%A9"],
])("the definition %s is found under %s", ([name, $ref]) => {
  expect(judge({ $ref, $defs: { [name]: { type: "null" } } }, "null")).toBe("whole");
});

test.for<[string, readonly string[], readonly string[]]>([
  ["ipv4", ["192.168.0.1", "255.255.255.255", "0.0.0.0"], ["192.168.01.1", "00.0.0.0", "256.1.1.1", "1.2.3"]],
  ["ipv6", ["::1", "::ffff:192.168.0.1", "1:2:3:4::10.0.0.9"], ["::ffff:192.168.00.1", "1:2"]],
  ["uri", ["https://example.com/a?b#c", "s3://bucket/key.png", "mailto:a@example.com"], ["3s://bucket", "a/b"]],
  ["uri-reference", ["https://example.com/a?b#c", "../a", "//host/a", "#c", ""], ["a b"]],
])("the format %s", ([format, whole, others]) => {
  const schema = { type: "string", format };
  for (const text of whole) expect([text, judge(schema, JSON.stringify(text))]).toEqual([text, "whole"]);
  for (const text of others) expect([text, judge(schema, JSON.stringify(text))]).toEqual([text, "none"]);
});

test.for<[string, readonly string[], readonly string[], readonly string[]]>([
  ["an integer or null", ["integer", "null"], ["0", "5", "null"], ["6", "-", "1.5", "t"]],
  ["a string or a number", ["string", "number"], ["0", "4.5", '"6"'], ["6", "-", "n"]],
])("bounds restrict the numbers of %s", ([, type, whole, none]) => {
  const schema = { type, minimum: 0, maximum: 5 };
  checkJsonSchema(JSON.stringify(schema));
  for (const text of whole) expect([text, judge(schema, text)]).toEqual([text, "whole"]);
  for (const text of none) expect([text, judge(schema, text)]).toEqual([text, "none"]);
});

test.for<[string, object, readonly string[], readonly string[]]>([
  ["a known format", { format: "date", pattern: "^2\\d{3}-02-29$" }, ["2024-02-29"], ["2024-01-01"]],
  ["an unknown format", { format: "cuid2", pattern: "^[0-9a-z]+$" }, ["a1"], ["A", ""]],
  ["a length of all its texts", { pattern: "^(é|[a-z]{2})+$", minLength: 1 }, ["é", "abé"], ["a", ""]],
  ["the only length", { pattern: "^\\d{4}(😀|x)$", minLength: 5, maxLength: 5 }, ["2024😀"], ["2024"]],
  ["a maximum length", { pattern: '^([a-c]{2}|"é)*!$', maxLength: 5 }, ["!", "ab!", 'ab"é!'], ['"éabab', "abab"]],
])("a pattern may stand beside %s", ([, keywords, whole, others]) => {
  const schema = { type: "string", ...keywords };
  checkJsonSchema(JSON.stringify(schema));
  for (const text of whole) expect([text, judge(schema, JSON.stringify(text))]).toEqual([text, "whole"]);
  for (const text of others) expect([text, judge(schema, JSON.stringify(text))]).toEqual([text, "none"]);
});

test.for<[string, object, readonly string[], readonly string[]]>([
  ["an unknown one", { format: "password", minLength: 2, maxLength: 3 }, ["ab", "abc"], ["a", "abcd"]],
  ["the bounds of Pydantic's HttpUrl", { format: "uri", minLength: 1, maxLength: 2083 }, ["a:b"], ["", "a"]],
  ["a known one whose texts all have it", { format: "uri", minLength: 1 }, ["a:b"], ["", "a"]],
])("a length may stand beside a format: %s", ([, keywords, whole, others]) => {
  const schema = { type: "string", ...keywords };
  checkJsonSchema(JSON.stringify(schema));
  for (const text of whole) expect([text, judge(schema, JSON.stringify(text))]).toEqual([text, "whole"]);
  for (const text of others) expect([text, judge(schema, JSON.stringify(text))]).toEqual([text, "none"]);
});

test.for<readonly [object, readonly string[], readonly string[]]>([
  [
    { type: "string" },
    ['"\\ud83d\\uDE00"', '"a\\uDBFF\\udfff\\ud800\\udc00"', '"\\ud7ff\\ue000"'],
    ['"\\ud800"', '"\\ud83d\\n', '"\\ud83d\\ud83d', '"\\ud83d\\u0061', '"\\ude00', '"\\ud83da', '"\\ud83d\\\\'],
  ],
  [{}, ['{"\\ud83d\\ude00": "\\ud83d\\ude00"}'], ['{"\\ud83d"', '["\\ud83d"', '["\\ude00']],
  [
    { type: "string", minLength: 1, maxLength: 1 },
    ['"\\ud83d\\ude00"', '"😀"', '"\\u00e9"'],
    ['"\\ud83d\\ude00a', '"\\ud83d"', '"\\ude00', '"\\ud83d\\ude00\\ud83d'],
  ],
  [{ type: "string", minLength: 2 }, ['"\\ud83d\\ude00\\ud83d\\ude00"'], ['"\\ud83d\\ude00"']],
])("escaped surrogates are pairs, which are one character: %j", ([schema, whole, none]) => {
  for (const text of whole) expect([text, judge(schema, text)]).toEqual([text, "whole"]);
  for (const text of none) expect([text, judge(schema, text)]).toEqual([text, "none"]);
});

test.for<[object, string, string]>([
  [{ type: "number" }, `-${"9".repeat(40)}.${"9".repeat(40)}e99`, "5e+313"],
  [{ type: "number" }, "1.5E-07", "1e-100"],
  [{ type: "integer" }, "9".repeat(40), "9".repeat(41)],
  [{ type: "integer", minimum: 5 }, "9".repeat(40), "9".repeat(41)],
  [{ type: "integer", maximum: 5 }, `-${"9".repeat(40)}`, `-${"9".repeat(41)}`],
  [{ type: "number", exclusiveMinimum: 1 }, `${"9".repeat(40)}.5`, "9".repeat(41)],
  [{}, `[${"9".repeat(40)}]`, "[1e400"],
])("a number of %j cannot become infinite", ([schema, finite, other]) => {
  expect(judge(schema, finite)).toBe("whole");
  expect(judge(schema, other)).toBe("none");
});

test("listed names of properties may be required", () => {
  const names = { enum: ["a", "b", "c", 1] };
  const schema = {
    type: "object",
    propertyNames: names,
    additionalProperties: { type: "integer" },
    required: ["a", "c"],
  };
  checkJsonSchema(JSON.stringify(schema));
  for (const text of ['{"a": 1, "c": 2}', '{"a": 1, "b": 3, "c": 2}'])
    expect([text, judge(schema, text)]).toEqual([text, "whole"]);
  for (const text of ["{}", '{"a": 1}', '{"a": 1, "b": 3}', '{"a": "1"', '{"a": 1, "a"', '{"d"', '{"1"'])
    expect([text, judge(schema, text)]).not.toEqual([text, "whole"]);
});

test("the records, dates and addresses of Zod are enforced", () => {
  const schema = z.toJSONSchema(
    z.object({
      day: z.iso.date(),
      moment: z.iso.datetime(),
      mail: z.email(),
      id: z.uuid(),
      address: z.ipv4(),
      code: z.string().startsWith("ab"),
      votes: z.record(z.enum(["yes", "no"]), z.int()),
    }),
  );
  checkJsonSchema(JSON.stringify(schema));
  const value = {
    day: "2024-02-29",
    moment: "2024-02-29T10:20:30Z",
    mail: "a.b@example.org",
    id: "123e4567-e89b-42d3-a456-426614174000",
    address: "10.0.0.1",
    code: "abc",
    votes: { yes: 2, no: 1 },
  };
  expect(judge(schema, JSON.stringify(value))).toBe("whole");
  expect(judge(schema, JSON.stringify({ ...value, day: "2023-02-29" }))).toBe("none");
  expect(judge(schema, JSON.stringify({ ...value, votes: { yes: 2 } }))).toBe("none");
});
