import { describe, expect, test } from "vitest";

import { JsonFloat, JsonInteger } from "../../../engine/index.ts";
import { JinjaTemplate } from "../../../engine/text/jinja/template.ts";
import { parseArguments } from "../../../functions/generation/parse-arguments.ts";

function parsed(text: string): unknown {
  const result = parseArguments(text);
  return result.kind === "parsed" ? result.value : result.problem;
}

/** `json.dumps(json.loads(text))` of Python is the same text. */
test.for([
  `{"price": 10.0}`,
  `{"a": [1, 1.0, -0.0, 1.5, 100.0, 1e+20, 1e+16, 1000000000000000.0, 12345678901234.5]}`,
  `{"1.0": "1.0", "quoted": "\\"2.0, 3e5", "e": [true, false, null], "f": {"g": {"h": [2.0, {"i": -3.0}]}}}`,
  `{"id": 175928847299117063, "ids": [-12345678901234567890, 9007199254740993, 9007199254740991]}`,
  `{"__proto__": 1.0, "constructor": {"__proto__": {"a": 2.0}}, "toJSON": 3.0}`,
])("%s is printed as by Python", (text) => {
  expect(new JinjaTemplate("{{ given | tojson }}").render({ given: parsed(text) })).toBe(text);
});

test.for([
  [`{"a":1E3}`, 1000],
  [`{"a":1.5e1}`, 15],
  [`{"a":-20e-1 }`, -2],
  [`{"a":12345678901234567890.5}`, 12345678901234567000],
] as const)("%s has a float", ([text, value]) => {
  expect(parsed(text)).toEqual({ a: new JsonFloat(value) });
  expect(JSON.stringify(parsed(text))).toBe(JSON.stringify({ a: value }));
});

test("an integer beyond 2^53 is written with all its digits again, and may be compared and tested", () => {
  const given = parsed('{"id": 175928847299117063, "next": 175928847299117064}') as Record<string, unknown>;
  expect(given["id"]).toEqual(new JsonInteger(175928847299117063n));
  expect(JSON.stringify(given)).toBe('{"id":175928847299117063,"next":175928847299117064}');
  const template = new JinjaTemplate(
    "{{ id is integer }} {{ id is number }} {{ id == next }} {{ id == id }} {{ id > 5 }} {{ 'x' if id }} {{ id ~ '!' }}",
  );
  expect(template.render(given)).toBe("True True False True True x 175928847299117063!");
});

describe("plain numbers are", () => {
  test("those that JavaScript tells apart", () => {
    expect(parsed('{"a": [1, -0, 1.5, 1e400, 12e-1]}')).toEqual({ a: [1, -0, 1.5, Infinity, 1.2] });
  });

  test("all of a text with thousands of floats", () => {
    const list = (length: number): unknown => parsed(`{"a": [${Array.from({ length }, () => "1.0").join()}]}`);
    expect(list(4096)).toEqual({ a: Array.from({ length: 4096 }, () => new JsonFloat(1)) });
    expect(list(4097)).toEqual({ a: Array.from({ length: 4097 }, () => 1) });
  });
});

test("a text that is no JSON is refused", () => {
  expect(parsed('{"a": 1.0, "b": 2.')).toMatch(/^is not valid JSON/);
});
