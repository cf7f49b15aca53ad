import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { withThinking } from "../../../engine/input/reasoning.ts";
import { checkStructuredOutput } from "../../../engine/structured-output/check-structured-output.ts";
import type { StructuralFormat } from "../../../engine/structured-output/structured-output.ts";
import { Reader } from "./grammars.ts";

const markers = ["<a>", "ab", "</think>", "[TOOL_CALLS]", "◁/x▷", "abbb"];
/** Texts that often contain or begin the marker. */
const textsAround = (marker: string) =>
  fc
    .array(
      fc.oneof(
        fc.constantFrom(...Array.from({ length: marker.length }, (_, length) => marker.slice(0, length + 1))),
        fc.constantFrom(...Array.from(marker), "x", "é", "😀", "\n"),
      ),
      { maxLength: 10 },
    )
    .map((pieces) => pieces.join(""))
    .filter((text) => text.isWellFormed());

const readerOf = (format: StructuralFormat) => new Reader({ kind: "structural", format });

describe.for(markers)("with the marker %s", (marker) => {
  test("text without it is every text in which it does not occur", () => {
    const reader = readerOf({ type: "text-without", marker });
    fc.assert(
      fc.property(textsAround(marker), (text) => {
        expect(reader.judge(Buffer.from(text))).toBe(text.includes(marker) ? "none" : "whole");
      }),
      { numRuns: 1000 },
    );
  });

  test("text through it ends at its first occurrence", () => {
    const reader = readerOf({ type: "text-through", marker });
    fc.assert(
      fc.property(textsAround(marker), (text) => {
        const index = text.indexOf(marker);
        const expected = index === -1 ? "begun" : index + marker.length === text.length ? "whole" : "none";
        expect(reader.judge(Buffer.from(text))).toBe(expected);
      }),
      { numRuns: 1000 },
    );
  });
});

test("text and forms follow each other, and rules of equal names stay apart", () => {
  const list = (element: string) =>
    ({ type: "form", form: { kind: "grammar", grammar: `root ::= item*\nitem ::= "${element}" root` } }) as const;
  const reader = readerOf({
    type: "sequence",
    parts: [
      list("a"),
      { type: "text", text: "-" },
      { type: "repetition", part: list("b"), min: 1, max: 2 },
      {
        type: "alternatives",
        options: [
          { type: "text", text: "." },
          { type: "text", text: "!" },
        ],
      },
    ],
  });
  for (const text of ["aa-bb.", "-b!", "-."]) expect([text, reader.judge(Buffer.from(text))]).toEqual([text, "whole"]);
  for (const text of ["ab-b.", "a-a.", "a-b?"]) expect([text, reader.judge(Buffer.from(text))]).toEqual([text, "none"]);
});

test.for([
  ["continued", [" and so on.</think>\n\n{}", "</think>{}"], ["{}", "<think></think>{} x"]],
  ["inside", ["Hm.</think>\n\n{}", "</think>{}"], ["{}", "<think></think>{} x"]],
  ["before", ["{}", "<think>Hm.</think>\n{}"], ["Hm.</think>{}", "<think>{}"]],
  ["after", ["{}"], ["<think></think>{}"]],
] as const)("an answer that starts %s the thinking has its form", ([start, good, bad]) => {
  const reader = new Reader(
    withThinking({ kind: "json-object" }, { start: "<think>", end: "</think>", startsInside: false }, start),
  );
  for (const text of good) expect([text, reader.judge(Buffer.from(text))]).toEqual([text, "whole"]);
  for (const text of bad) expect([text, reader.judge(Buffer.from(text))]).not.toEqual([text, "whole"]);
});

test.for<[string, string, string]>([
  ["is no JSON", "{", ""],
  ["never ends", '{"$ref": "#"}', "No text can have this form: its rule # never ends."],
  [
    "has a broken pattern",
    '{"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}',
    "json.properties.a.pattern has a group that is not closed at position 1.",
  ],
  [
    "has a broken pattern of names",
    '{"type": "object", "patternProperties": {"(": {"type": "string"}}}',
    "json.patternProperties.( has a group that is not closed at position 1.",
  ],
])("the error of a form that %s names its field", ([, schema, problem]) => {
  const form = { kind: "json-schema", schema } as const;
  const format: StructuralFormat = { type: "form", form, field: "tools[2].function.parameters" };
  const read = (): void => {
    checkStructuredOutput({ kind: "structural", format });
    void new Reader({ kind: "structural", format });
  };
  expect(read).toThrow(
    expect.objectContaining({
      parameter: "tools[2].function.parameters",
      message: expect.stringContaining(`tools[2].function.parameters cannot be enforced: ${problem}`),
    }),
  );
});

test.for(["", "a", "aba", "<<x"])("the marker %j cannot be followed", (marker) => {
  expect(() => checkStructuredOutput({ kind: "structural", format: { type: "text-through", marker } })).toThrow(
    /must have two characters or more, and its first only once/,
  );
});
