/** White space between the parts of JSON is bounded, so that a model cannot fill its tokens with it. */
import { describe, expect, test } from "vitest";

import type { StructuredOutput } from "../../../engine/structured-output/structured-output.ts";
import { Reader } from "./grammars.ts";

const schema = JSON.stringify({
  type: "object",
  properties: { a: { type: "array", items: { type: "integer" } }, b: {} },
  required: ["a", "b"],
});
const value = { a: [1, 2], b: { c: [] } };

const judge = (form: StructuredOutput, text: string): string => new Reader(form).judge(Buffer.from(text));

describe.for<[string, StructuredOutput]>([
  ["a schema", { kind: "json-schema", schema }],
  ["any object", { kind: "json-object" }],
  [
    "a schema within a structural format",
    { kind: "structural", format: { type: "form", form: { kind: "json-schema", schema } } },
  ],
])("the text of %s", ([, form]) => {
  test.for<[string, string]>([
    ["without white space", JSON.stringify(value)],
    ["as Python writes it", '{"a": [1, 2], "b": {"c": []}}'],
    ["indented by spaces", JSON.stringify(value, null, 2)],
    ["indented by tabs", JSON.stringify(value, null, "\t")],
    ["with a space before a colon", '{"a" : [1, 2], "b" : {"c" : []}}'],
    ["with an empty line", '{\n\n  "a": [1, 2], "b": {"c": []}}'],
    ["indented by 20 characters", `{\n${" ".repeat(20)}"a": [1, 2], "b": {"c": []}}`],
  ])("may be %s", ([, text]) => {
    expect(judge(form, text)).toBe("whole");
  });

  test.for<[string, string]>([
    ["two spaces", '{  "a"'],
    ["a tab", '{\t"a"'],
    ["three line breaks", '{\n\n\n"a"'],
    ["an indentation of 21 characters", `{\n${"\t".repeat(21)}"a"`],
    ["a line break after an indentation", '{\n  \n"a"'],
    ["two spaces before a comma", '{"a": [1  , 2'],
    ["two spaces at the end of a list", '{"a": [1, 2  ]'],
  ])("may not have %s", ([, text]) => {
    expect(judge(form, text)).toBe("none");
  });
});

test("a compact text has no white space but one space after a comma or colon", () => {
  for (const form of [
    { kind: "json-schema", schema, isCompact: true },
    { kind: "json-object", isCompact: true },
  ] as const) {
    expect(judge(form, JSON.stringify(value))).toBe("whole");
    expect(judge(form, '{"a": [1, 2], "b": {"c": []}}')).toBe("whole");
    for (const text of [
      '{ "a"',
      '{"a" :',
      '{"a":  ',
      '{"a":\n',
      '{"a": [ 1',
      '{"a": [1 ',
      '{"a": [1,2],"b":{"c":[]} ',
    ]) {
      expect([text, judge(form, text)]).toEqual([text, "none"]);
    }
  }
});
