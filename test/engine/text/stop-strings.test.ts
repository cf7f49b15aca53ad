import * as fc from "fast-check";
import { expect, test } from "vitest";

import { StopStrings } from "../../../engine/text/stop-strings.ts";

/** Feeds the pieces until one matches; returns all emitted text and the match. */
function run(
  pieces: readonly string[],
  stop: readonly string[],
  options: { includeInOutput?: boolean; numUnchecked?: number } = {},
): { given: string[]; matched: string | null } {
  const stopStrings = new StopStrings({ stop, includeInOutput: options.includeInOutput ?? false });
  const given: string[] = [];
  for (const [index, piece] of pieces.entries()) {
    const result = stopStrings.append(piece, index >= (options.numUnchecked ?? 0));
    given.push(result.text);
    if (result.matched !== null) return { given, matched: result.matched };
  }
  given.push(stopStrings.finish());
  return { given, matched: null };
}

test.for([
  { name: "in one piece", pieces: ["a STOP b"], stop: ["STOP"], text: "a ", matched: "STOP" },
  { name: "across pieces", pieces: ["a S", "T", "OP b"], stop: ["STOP"], text: "a ", matched: "STOP" },
  { name: "the first to be complete", pieces: ["abcd"], stop: ["bcd", "bc"], text: "a", matched: "bc" },
  {
    name: "the earlier in the list of two that end together",
    pieces: ["abcd"],
    stop: ["d", "cd"],
    text: "abc",
    matched: "d",
  },
  { name: "at the very start", pieces: ["\n"], stop: ["\n"], text: "", matched: "\n" },
  { name: "nowhere", pieces: ["ab", "cd"], stop: ["bd"], text: "abcd", matched: null },
])("text ends before a stop string found $name", ({ pieces, stop, text, matched }) => {
  const result = run(pieces, stop);
  expect(result.given.join("")).toBe(text);
  expect(result.matched).toBe(matched);
});

test("a stop string that is part of the output ends it, and nothing is held back", () => {
  const result = run(["ab S", "TO", "P cd"], ["STOP"], { includeInOutput: true });
  expect(result).toEqual({ given: ["ab S", "TO", "P"], matched: "STOP" });
});

test("one character less than the longest stop string is held back until the end", () => {
  expect(run(["abcdef", "g", "h"], ["1234"]).given).toEqual(["abc", "d", "e", "fgh"]);
});

test("a stop string in exempt text does not end it, one that ends later does", () => {
  expect(run(["xx", "y"], ["x"], { numUnchecked: 1 })).toEqual({ given: ["xx", "y", ""], matched: null });
  expect(run(["aS", "T"], ["ST"], { numUnchecked: 1 })).toEqual({ given: ["a", ""], matched: "ST" });
});

test("a surrogate pair is never split", () => {
  const { given } = run(["ab😀", "cd"], ["12"]);
  for (const text of given) expect(text.isWellFormed()).toBe(true);
  expect(given.join("")).toBe("ab😀cd");
});

test("however the text is split, it ends at the first complete match", () => {
  const letters = fc.string({ unit: fc.constantFrom("a", "b", "c"), minLength: 1, maxLength: 4 });
  const property = fc.property(
    fc.array(letters, { maxLength: 12 }),
    fc.array(letters, { minLength: 1, maxLength: 4 }),
    (pieces, stop) => {
      const text = pieces.join("");
      const ends = stop.map((string) => (text.includes(string) ? text.indexOf(string) + string.length : Infinity));
      const end = Math.min(...ends);
      const expected = end === Infinity ? text : text.slice(0, end - stop[ends.indexOf(end)]!.length);
      const result = run(pieces, stop);
      expect(result.matched).toBe(end === Infinity ? null : stop[ends.indexOf(end)]);
      expect(result.given.join("")).toBe(expected);
    },
  );
  fc.assert(property, { numRuns: 2000 });
});
