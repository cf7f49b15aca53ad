import * as fc from "fast-check";
import { expect, test } from "vitest";

import {
  MAX_JSON_CONTAINERS,
  MAX_JSON_DEPTH,
  MAX_JSON_KEYS,
  MAX_JSON_VALUES,
  parseBoundedJson,
  parseJsonBytes,
} from "../../../functions/http/bounded-json.ts";

const lists = (depth: number): string => "[".repeat(depth) + "]".repeat(depth);
const objects = (depth: number): string => '{"a":'.repeat(depth - 1) + "{}" + "}".repeat(depth - 1);
const members = (count: number): string =>
  `{${Array.from({ length: count }, (_, index) => `"k${index}":0`).join(",")}}`;

test("JSON within the limits is parsed like JSON.parse, with any white space", () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.constantFrom(undefined, 1, "\t \r\n"), (value, space) => {
      const text = JSON.stringify(value, null, space);
      expect(parseBoundedJson(text)).toEqual({ kind: "parsed", value: JSON.parse(text) });
      expect(parseJsonBytes(Buffer.from(`\uFEFF${text}`))).toEqual({ kind: "parsed", value: JSON.parse(text) });
    }),
  );
});

test("any text is parsed or rejected like by JSON.parse", () => {
  const characters = fc.constantFrom("{", "}", "[", "]", ":", ",", '"', "\\", "a", "1", " ", "null");
  fc.assert(
    fc.property(fc.array(characters, { maxLength: 12 }), (parts) => {
      const text = parts.join("");
      let expected: object = { kind: "refused", code: "invalid_json" };
      try {
        expected = { kind: "parsed", value: JSON.parse(text) as unknown };
      } catch {
        // Rejected.
      }
      expect(parseBoundedJson(text)).toMatchObject(expected);
    }),
    { numRuns: 2000 },
  );
});

test.for<[string, number, (count: number) => string]>([
  ["levels of lists", MAX_JSON_DEPTH, lists],
  ["levels of objects", MAX_JSON_DEPTH, objects],
  ["lists", MAX_JSON_CONTAINERS, (count) => `[${Array.from({ length: count - 1 }, () => "[]").join(",")}]`],
  ["objects", MAX_JSON_CONTAINERS, (count) => `[${Array.from({ length: count - 1 }, () => "{}").join(",")}]`],
  ["names", MAX_JSON_KEYS, members],
  ["values", MAX_JSON_VALUES, (count) => `[${"0,".repeat(count)}0]`],
])("as many %s as %i are parsed, and one more is rejected", ([, limit, textOf]) => {
  expect(parseBoundedJson(textOf(limit)).kind).toBe("parsed");
  const refused = parseBoundedJson(textOf(limit + 1));
  expect(refused).toMatchObject({
    kind: "refused",
    code: "json_too_complex",
    problem: expect.stringContaining(`has more than ${limit} `),
  });
});

test("characters in strings do not count, even after escaped quotes and backslashes", () => {
  const noise = `${"[{".repeat(500)}${":,".repeat(MAX_JSON_CONTAINERS + 1)}`;
  for (const value of [noise, `"${noise}"`, `\\"${noise}\\\\`, `${noise}\\`, '\\"', "\\", '"', ""]) {
    const text = JSON.stringify({ [value]: value, next: [value] });
    expect(parseBoundedJson(text)).toEqual({ kind: "parsed", value: JSON.parse(text) });
  }
});

test("the member that exceeds the limit is named if its name is plain", () => {
  const within = (name: string): unknown =>
    parseBoundedJson(`{"first": [1], ${JSON.stringify(name)}: ${lists(200_000)}}`);
  expect(within("prompt")).toMatchObject({ member: "prompt" });
  expect(within("a".repeat(65))).toMatchObject({ member: null });
  expect(within("<script>")).toMatchObject({ member: null });
});

test("a rejection does not quote the text", () => {
  expect(JSON.stringify(parseBoundedJson('{"a": secret-bytes'))).not.toContain("secret");
  expect(parseJsonBytes(Buffer.from([0x22, 0xff, 0x22]))).toMatchObject({
    code: "invalid_json",
    problem: "is not UTF-8",
  });
});
