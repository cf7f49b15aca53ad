import { expect, test } from "vitest";

import { parsePythonJson } from "../../../engine/weights/python-json.ts";

test("numbers that only Python writes are read as such", () => {
  expect(parsePythonJson('{"a": [NaN, -Infinity, Infinity,1e3, -0.0], "NaN": {"b":NaN}}')).toEqual({
    a: [NaN, -Infinity, Infinity, 1000, -0],
    NaN: { b: NaN },
  });
  expect(parsePythonJson(" NaN ")).toBeNaN();
});

test("texts with such words stay as they are", () => {
  const value = { "x\\": 'NaN: "Infinity", \\', "-Infinity": "\n, NaN" };
  expect(parsePythonJson(`[NaN, ${JSON.stringify(value)}]`)).toEqual([NaN, value]);
});

test.for(['{"a": NaNs}', '{"a": 1, NaN}', '{"a": infinity}', '{"a": +Infinity}', '{"a": 1NaN}', '"NaN', "[NaN", ""])(
  "%s is rejected as by JSON.parse",
  (text) => {
    let expected: Error | undefined;
    try {
      JSON.parse(text);
    } catch (error) {
      expected = error as Error;
    }
    expect(() => parsePythonJson(text)).toThrow(expected);
  },
);
