/** Patterns with lookaheads and word boundaries allow exactly the strings that RegExp finds. */
import { expect, test } from "vitest";

import { createAssertionMeter, readAssertedTexts } from "../../../engine/structured-output/asserted-texts.ts";
import type { Expression } from "../../../engine/structured-output/expression.ts";
import { checkJsonSchema } from "../../../engine/structured-output/json-schema.ts";
import type { StructuredOutput } from "../../../engine/structured-output/structured-output.ts";
import { createRandom, Reader } from "./grammars.ts";

function strings(keywords: object): Reader {
  const schema = JSON.stringify({ type: "string", ...keywords });
  checkJsonSchema(schema);
  return new Reader({ kind: "json-schema", schema });
}

const isWhole = (reader: Reader, text: string): boolean => reader.judge(Buffer.from(JSON.stringify(text))) === "whole";

test.for<[string, readonly string[], readonly string[]]>([
  [
    String.raw`^(?=.*\d)(?=.*[a-z])(?=.*[A-Z]).{8,}$`,
    ["Passw0rdX", "aB345678", 'aB3"\\/\t😀'],
    ["password", "aB34567", "PASSW0RD"],
  ],
  [
    String.raw`^(?=.*\d)(?=.*[a-z])(?=.*[A-Z])(?=.*[^\w\s]).{8,64}$`,
    ["Passw0rd-", `é1aA${"-".repeat(60)}`],
    ["Passw0rdX", `é1aA${"-".repeat(61)}`],
  ],
  ["^(?=.*a)[ab]{2,3}(?!c)$", ["ab", "bba"], ["a", "bb", "abab"]],
  [String.raw`\b^(?=.*1)\w{2}\b$`, ["a1", "11"], ["1", "ab", "1ab", "1-"]],
  ["^(?=.*a).{2}", ["ab", "xab"], ["a", "bb"]],
  ["^(?:(?=.*a).{2}|b)$", ["ab", "b"], ["a", "aab"]],
  [String.raw`^\p{Lu}[\p{L}\p{M}'-]*$`, ["Zoë", "Éa", "Ж-中"], ["zoë", "A1", ""]],
  [String.raw`^(?=\P{N}+$)[^\p{Z}]{2,}$`, ["ab", "é-"], ["a b", "a1", "a\u00a0b", "a٣"]],
  [String.raw`^\p{Script=Han}+$`, ["中文"], ["中a", "あ"]],
  ["^(?!-)[a-z-]{1,20}$", ["a-b", "a-"], ["-a", ""]],
  ["^(?!.*--)[a-z][a-z-]*$", ["a-b-c", "a-"], ["a--b", "-a"]],
  ["^(?!admin$|root$).+$", ["admins", "user", "roo"], ["admin", "root", ""]],
  [String.raw`\bcat\b`, ["cat", "a cat!", "the-cat"], ["cats", "concat", "cat_"]],
  [String.raw`^\Bx|y\B`, ["yx", "ayb"], ["x", "y", "y x"]],
  ["^(?:(?!ab)[abc])+$", ["ba", "acb", "b"], ["ab", "cab", ""]],
  [String.raw`^(?=[\s\S]*a)(?=[\s\S]*b(?!c))c`, ["cab", "cba"], ["ab", "cabc", "abc"]],
  ["^(?<first>a(?=b)|b(?=a))*?(?:a|b)$", ["ab", "a", "aba"], ["aa", "abb"]],
])("%s", ([pattern, matching, others]) => {
  const reader = strings({ pattern });
  for (const text of [...matching, ...others]) {
    const isMatch = new RegExp(pattern, "u").test(text);
    expect([text, isMatch]).toEqual([text, matching.includes(text)]);
    expect([text, isWhole(reader, text)]).toEqual([text, isMatch]);
  }
});

test("the counts of a text behind lookaheads are its length, beside other lengths", () => {
  const pattern = String.raw`^(?=.*\d)(?=.*[a-z]).{3,5}$`;
  const judged = (keywords: object): boolean[] => {
    const reader = strings({ pattern, ...keywords });
    return ["a1", "ab1", "abc1", "abcd1", "abcde1"].map((text) => isWhole(reader, text));
  };
  expect(judged({})).toEqual([false, true, true, true, false]);
  expect(judged({ minLength: 4 })).toEqual([false, false, true, true, false]);
  expect(judged({ minLength: 1, maxLength: 4 })).toEqual([false, true, true, false, false]);
  expect(() => strings({ pattern, minLength: 6 })).toThrow(/matches no text of the allowed length/);
});

test("counts behind lookaheads take no more work than none", () => {
  const workOf = (counts: string): number => {
    const meter = createAssertionMeter();
    const bounds = { min: 0, max: Infinity };
    const options = { isWhole: false, bounds, place: "The pattern", meter, rules: new Map<string, Expression>() };
    readAssertedTexts(String.raw`^(?=.*\d)(?=.*[a-z])(?=.*[A-Z]).${counts}$`, options);
    return meter.numSpent;
  };
  expect(workOf("{8,64}")).toBe(workOf("*"));
});

test("lengths stand beside a lookahead", () => {
  const reader = strings({ pattern: String.raw`^(?=.*\d)`, minLength: 3, maxLength: 5 });
  expect(["a1", "ab1", "abc", "abc1é", "12345", "123456", "abcdef1"].map((text) => isWhole(reader, text))).toEqual([
    false,
    true,
    false,
    true,
    true,
    false,
    false,
  ]);
  expect(reader.judge(Buffer.from('"abcde'))).toBe("none");
});

test("a lookahead in a pattern by itself is about the whole text", () => {
  const reader = new Reader({ kind: "regex", pattern: String.raw`(?=.*\d)\w{2,3}` });
  expect(["a1", "1bc", "ab", "1", "abc1"].map((text) => reader.judge(Buffer.from(text)) === "whole")).toEqual([
    true,
    true,
    false,
    false,
    false,
  ]);
});

/** Random patterns over the letters a, b and `-`. */
function sketch(random: () => number, depth: number): string {
  const pick = (items: readonly string[]): string => items[Math.floor(random() * items.length)]!;
  const inner = (): string => sketch(random, depth - 1);
  const kind = random();
  if (depth === 0 || kind < 0.15) return pick(["a", "b", "-", ".", "[ab]", "[^a]", "ab", "\\b", "\\B", "$", "^"]);
  if (kind < 0.35) return inner() + inner();
  if (kind < 0.5) return `(?:${inner()}|${inner()})`;
  if (kind < 0.65) return `(?:${inner()})${pick(["*", "+", "?", "{2}", "{1,2}", "*?"])}`;
  if (kind < 0.85) return `(?=${inner()})${inner()}`;
  return `(?!${inner()})${inner()}`;
}

function textsOf(letters: readonly string[], maxLength: number): string[] {
  const texts = [""];
  for (const text of texts) if (text.length < maxLength) texts.push(...letters.map((letter) => text + letter));
  return texts;
}

/** Null for a pattern that no text matches. */
function readerOrNull(output: StructuredOutput): Reader | null {
  try {
    return new Reader(output);
  } catch (error) {
    if (String(error).includes("matches no text")) return null;
    throw error;
  }
}

test("random patterns with assertions match what RegExp matches", () => {
  const random = createRandom(3);
  const texts = textsOf(["a", "b", "-"], 5);
  let [numMatches, numOthers] = [0, 0];
  for (let round = 0; round < 300; round++) {
    const pattern = `(?=)${sketch(random, 4)}`;
    const isAnchored = random() < 0.5;
    const expression = new RegExp(isAnchored ? `^(?:${pattern})$` : pattern, "u");
    const output: StructuredOutput = isAnchored
      ? { kind: "regex", pattern }
      : { kind: "json-schema", schema: JSON.stringify({ type: "string", pattern }) };
    const reader = readerOrNull(output);
    for (const text of texts) {
      const isMatch = expression.test(text);
      const written = isAnchored ? text : JSON.stringify(text);
      expect([pattern, text, reader?.judge(Buffer.from(written)) === "whole"]).toEqual([pattern, text, isMatch]);
      if (isMatch) numMatches++;
      else numOthers++;
    }
  }
  expect(Math.min(numMatches, numOthers)).toBeGreaterThan(1000);
});

test.for<[string, object, string]>([
  ["a lookbehind", { pattern: "(?<=a)b(?=c)" }, "json.pattern has a lookbehind or a group of this kind at position 0"],
  ["no text", { pattern: "^(?=a)b" }, "json.pattern matches no text of the allowed length"],
  ["a length that no text has", { pattern: "^(?=a)a$", minLength: 2 }, "json.pattern matches no text of the allowed"],
  ["exponentially many states", { pattern: "^(?=.*a.{40}b)(?=.*b.{40}a).*$" }, "take too many states"],
  ["counts of counts", { pattern: "^(?!a)((.{0,999}a){0,999}b){0,999}$" }, "take too many states"],
  ["a large length", { pattern: "^(?=.*a)(?=.*b)", minLength: 1_000_000_000 }, "take too many states"],
  ["thousands of parts", { pattern: `(?=x)${"[a-z]?".repeat(600)}` }, "take too many states"],
  ["a long pattern", { pattern: `(?=x)${"a".repeat(4000)}` }, "more than 4000 characters"],
  [
    "thirty lookaheads",
    {
      pattern: `^${Array.from({ length: 30 }, (_, index) => `(?=.*${String.fromCodePoint(97 + (index % 26))}{${index + 1}})`).join("")}`,
    },
    "take too many states",
  ],
])("%s is rejected", ([, keywords, reason]) => {
  expect(() => strings(keywords)).toThrow(reason);
});
