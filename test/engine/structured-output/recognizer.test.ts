import { describe, expect, test } from "vitest";

import { readLanguage } from "../../../engine/structured-output/language.ts";
import type { StructuredOutput } from "../../../engine/structured-output/structured-output.ts";
import { Reader, createRandom } from "./grammars.ts";
import { Sketcher } from "./sketches.ts";

const numLanguages = 500;

function judgeAll(source: StructuredOutput, texts: readonly string[]): string[] {
  const reader = new Reader(source);
  return texts.map((text) => reader.judge(Buffer.from(text)));
}

/** A text with one character removed, inserted or changed. */
function change(text: string, sketcher: Sketcher): string {
  const characters = Array.from(text);
  const at = sketcher.pick([...characters.keys(), characters.length]);
  const others = [...characters, "a", "0"];
  return characters.toSpliced(at, sketcher.pick([0, 1]), ...sketcher.pick([[], [sketcher.pick(others)]])).join("");
}

test.for(["regex", "grammar"] as const)(
  "the complete texts of each %s are exactly those that RegExp matches",
  (kind) => {
    const sketcher = new Sketcher(createRandom(1));
    let numWhole = 0;
    for (let index = 0; index < numLanguages; index++) {
      const { pattern, grammar, sample } = sketcher.sketchLanguage(3);
      const expression = new RegExp(`^(?:${pattern})$`, "u");
      const reader = new Reader(kind === "regex" ? { kind, pattern } : { kind, grammar });
      for (const whole of Array.from({ length: 5 }, sample)) {
        const changed = change(whole, sketcher);
        for (const text of [whole, changed, change(changed, sketcher)]) {
          const judgement = reader.judge(Buffer.from(text));
          expect(judgement === "whole", `${pattern}\n${grammar}\n${text}`).toBe(expression.test(text));
          if (judgement === "whole") numWhole++;
        }
        const beginning = Array.from(whole).slice(0, 2).join("");
        expect(reader.judge(Buffer.from(beginning)), `${pattern}: ${beginning}`).not.toBe("none");
      }
    }
    expect(numWhole).toBeGreaterThan(5 * numLanguages);
  },
);

describe("grammars", () => {
  const cases: [string, string, Record<string, string>][] = [
    [
      "left recursion",
      'root ::= root "+" item | item\nitem ::= "1" | "(" root ")"',
      { "1": "whole", "1+1+(1+1)": "whole", "1+": "begun", "+": "none", "(1": "begun" },
    ],
    ["right recursion", 'root ::= "a" root | "b"', { [`${"a".repeat(500)}b`]: "whole", aab: "whole", ba: "none" }],
    [
      "every reading of an ambiguous text",
      'root ::= root root | "a" | ""',
      { "": "whole", ["a".repeat(40)]: "whole", b: "none" },
    ],
    ["rules that are empty", 'root ::= a b a "x"\na ::= "" | b\nb ::= a?', { x: "whole", "": "begun", xx: "none" }],
    [
      "rules that refer to each other",
      'root ::= "[" list? "]"\nlist ::= root ("," root)*',
      { "[[],[[]]]": "whole", "[[": "begun", "[,]": "none" },
    ],
    [
      "escapes",
      String.raw`root ::= "\x41\u00e9\U0001F600\n\"\\" [\]\-\u4e00]{1,2}`,
      { 'Aé😀\n"\\]-': "whole", 'Aé😀\n"\\一': "whole", 'Aé😀\n"\\': "begun", a: "none" },
    ],
    ["comments", '# all\nroot ::= # here\n  "a" # there\n  | "b"\n#end', { a: "whole", b: "whole", c: "none" }],
    ["bounds", 'root ::= ("ab"){2, 3} "c"{2,} "d"{0, -1}', { ababccd: "whole", abcc: "none", ababababcc: "none" }],
    [
      "alternatives that are empty, as llama.cpp writes them",
      'root ::= "a" space "b" ("c" | )\nspace ::= | " " | "\\n" [ \\t]{0,20}',
      { ab: "whole", "a b": "whole", "a\n\tbc": "whole", "a  b": "none" },
    ],
    [
      "any character",
      'root ::= "<" .{2} ">" . a.b\na.b ::= "x"',
      { "<é\n>😀x": "whole", "<ab>c": "begun", "<a>": "begun" },
    ],
    [
      "brackets and names as in llama.cpp",
      String.raw`root ::= "\[" 1st "\]"${"\n"}1st ::= "a"`,
      { "[a]": "whole", "[": "begun" },
    ],
    ["a rule that nothing ends", 'root ::= "a" root', { aa: "begun", b: "none" }],
  ];

  test.for(cases)("accept %s", ([, grammar, judgements]) => {
    expect(judgeAll({ kind: "grammar", grammar }, Object.keys(judgements))).toEqual(Object.values(judgements));
  });

  test.for([
    ["a rule that does not exist", "root ::= other", "no rule other"],
    ["two rules of a name", 'root ::= "a"\nroot ::= "b"', "a second rule root"],
    ["a macro", "root ::= Token(1)", "Token"],
    ["nothing", "root ::= ", 'has an empty alternative, which is written "", at position 9'],
    ["a string without its end", 'root ::= "a', "has a string that is not closed at position 9"],
    ["a group without its end", 'root ::= ("a"', "expects ) at position 13"],
  ] as const)("with %s are rejected", ([, grammar, reason]) => {
    expect(() => readLanguage({ kind: "grammar", grammar })).toThrow(reason);
  });
});

describe("patterns", () => {
  const cases: [string, string, Record<string, string>][] = [
    ["anchors", "^a|b$", { a: "whole", b: "whole", ab: "none" }],
    ["anchors in groups", "(^a)(b|c$)", { ab: "whole", ac: "whole", b: "none" }],
    ["groups with names", "(?<year>[0-9]{2})-(?P<month>1)", { "24-1": "whole", "24-2": "none" }],
    ["hyphens beside sets", String.raw`[\w-.]{2}`, { "-.": "whole", "a-": "whole", "+": "none" }],
    ["escapes", String.raw`\x41b\.\u{1F600}\n`, { "Ab.😀\n": "whole", "A.": "none" }],
    ["repetitions that take as little as they can", "a+?b??", { aab: "whole", a: "whole", b: "none" }],
    ["bounds that are wide", "[ab]{3,100000}c", { [`${"ab".repeat(200)}c`]: "whole", abc: "none", ab: "begun" }],
    ["repetitions within each other", "(?:(?:a*)*b?){0,3}", { "": "whole", aabab: "whole", abababa: "none" }],
  ];

  test.for(cases)("accept %s", ([, pattern, judgements]) => {
    expect(judgeAll({ kind: "regex", pattern }, Object.keys(judgements))).toEqual(Object.values(judgements));
  });

  test.for([
    ["an anchor in the middle", "a^b", "^ after characters"],
    ["something behind the end", "a$b", "characters after $"],
    ["a repeated anchor", "(^a)*", "a repetition of ^ or $"],
    ["a lookbehind", "a(?<=b)", "a lookbehind"],
    ["a comment", "a(?#b)", "a group of this kind"],
    ["a group that is not closed", "(a", "a group that is not closed"],
    ["a group too many", "a)", ")"],
    ["a reference back", String.raw`(a)\1`, "an escape"],
    ["bounds in the wrong order", "a{3,2}", "{3,2}"],
  ] as const)("with %s are rejected", ([, pattern, reason]) => {
    expect(() => readLanguage({ kind: "regex", pattern })).toThrow(reason);
  });
});

test("choices with a common beginning are not mixed up", () => {
  const choices = ["a", "ab", "abc", "b", "é", "éa", "😀"];
  const source: StructuredOutput = { kind: "choice", choices };
  expect(judgeAll(source, choices)).toEqual(choices.map(() => "whole"));
  expect(judgeAll(source, ["", "ba", "abcd", "😁"])).toEqual(["begun", "none", "none", "none"]);
});

test("characters are followed byte by byte, and invalid UTF-8 is rejected", () => {
  const reader = new Reader({ kind: "regex", pattern: "[é中😀]+" });
  const bytes = Buffer.from("😀é中中é😀");
  expect(reader.judge(bytes)).toBe("whole");
  expect(reader.judge(bytes.subarray(0, -1))).toBe("begun");
  const anything = new Reader({ kind: "regex", pattern: "[^a]*" });
  const wrong = [[0x80], [0xc0, 0x80], [0xc3, 0x28], [0xe0, 0x80], [0xed, 0xa0], [0xf0, 0x80], [0xf4, 0x90], [0xff]];
  for (const sequence of wrong) expect(anything.judge(sequence), `bytes ${sequence.join(" ")}`).toBe("none");
});
