import { describe, expect, test } from "vitest";

import { JsonFloat } from "../../../engine/index.ts";
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
