/** Structured outputs that cost more than they seem to. */
import type { StructuredOutput } from "../../../engine/structured-output/structured-output.ts";

const grammar = (...rules: readonly string[]): StructuredOutput => ({ kind: "grammar", grammar: rules.join("\n") });
const regex = (pattern: string): StructuredOutput => ({ kind: "regex", pattern });
const schema = (value: unknown): StructuredOutput => ({ kind: "json-schema", schema: JSON.stringify(value) });
const limited = (pattern: string, maxLength: number): StructuredOutput =>
  schema({ type: "string", pattern, maxLength });
const times = <Item>(length: number, create: (index: number) => Item): Item[] =>
  Array.from({ length }, (_, index) => create(index));

/** Every rule is twice the one below: the length of the longest text doubles forty times. */
export const doublingGrammar = grammar(
  "root ::= a0",
  ...times(40, (level) => `a${level} ::= a${level + 1} a${level + 1}`),
  "a40 ::= [a-z ]?",
);

/** Every level has the one below it four times: as a tree, it would have 67 million parts. */
const sharedAlternatives = grammar(
  "root ::= a0*",
  ...times(13, (level) => {
    const below = `a${level + 1}`;
    const beside = ["b", "c", "d"];
    return [
      `a${level} ::= ${below} | ${beside.map((letter) => letter + level).join(" | ")}`,
      ...beside.map((letter) => `${letter}${level} ::= ${below} | "${letter}"`),
    ].join("\n");
  }),
  'a13 ::= "" | "z"',
);

export const attacks: readonly (readonly [name: string, output: StructuredOutput])[] = [
  ["forty levels of rules that double", doublingGrammar],
  [
    "forty levels that double around what may be left out",
    grammar(
      "root ::= a0",
      ...times(40, (level) => `a${level} ::= a${level + 1} "-"? a${level + 1}`),
      "a40 ::= [a-z ]?",
    ),
  ],
  ["empty rounds within empty rounds", regex("((.?){60}){60}")],
  ["empty rounds of two kinds", regex("((a?b?){60}(c?d?){60}){60}")],
  ["left recursion", grammar('root ::= root "," item | item', "item ::= [a-z]+ | item item")],
  ["alternatives of alternatives that are the same", sharedAlternatives],
  [
    "thousands of repetitions of thousands of words",
    grammar(`root ::= ${"a* ".repeat(20_000)}`, `a ::= "" | ${times(8000, (i) => `"${i}"`).join(" | ")}`),
  ],
  ["every way to split a text in two", grammar('root ::= root root | "a" | ""')],
  ["every way to split a text in three", grammar("root ::= root root root | [a-z ]?")],
  ["alternatives that are alike", regex("(a|a|aa)*")],
  ["words within words", regex("(a|aa|aaa|aaaa|aaaaa|aaaaaa)*(a|aa|aaa|aaaa)*b?")],
  ["large counts", regex("(a{1000}){1000}")],
  ["large counts of what may be left out", regex("((a{0,1000}b?){0,1000}c?){0,1000}")],
  ["a place that is forgotten late", regex(".*a.{1000}")],
  ["many places to remember", regex("(.*a.*b.*c.*d){40}")],
  ["ten thousand choices that begin alike", { kind: "choice", choices: times(10_000, (i) => `aaaaaaaaaa${i}`) }],
  ["sixty-four groups", regex(`${"(".repeat(64)}a?${")?".repeat(64)}`)],
  ["sixty-four groups with counts", regex(`${"(".repeat(64)}a${"{0,9}b?)".repeat(64)}`)],
  ["the longest pattern", regex("[a-z]?".repeat(43_690))],
  [
    "the longest pattern of different parts",
    regex(times(20_000, (i) => `[a${"bcdefghij"[i % 9]}]b?${i % 10}?`).join("")),
  ],
  ["alternatives without end", regex(times(20_000, (i) => `[ab]${i}`).join("|"))],
  ["a long chain of rules", grammar("root ::= r0", ...times(15_000, (i) => `r${i} ::= r${i + 1}`), 'r15000 ::= "a"')],
  [
    "a sequence of rules that are found to end one by one",
    grammar(
      `root ::= ${times(12_000, (i) => `r${i}`).join(" ")}`,
      ...times(12_000, (i) => `r${i} ::= "a"`).toReversed(),
    ),
  ],
  ["a schema of 5,000 properties", schema(manyProperties(5000, {}))],
  ["a schema of properties that are counted", schema({ ...manyProperties(200, {}), minProperties: 75 })],
  [
    "definitions that refer to each other",
    schema({
      $ref: "#/$defs/d0",
      $defs: Object.fromEntries(
        times(200, (i) => [
          `d${i}`,
          {
            anyOf: [
              { type: "integer" },
              ...times(8, (j) => ({ type: "array", items: { $ref: `#/$defs/d${(i * j + 1) % 200}` } })),
            ],
          },
        ]),
      ),
    }),
  ],
  ["the longest pattern with few characters", limited("[a-z]?".repeat(3333), 100)],
  ["alternatives that are alike, with few characters", limited("(a|a|aa)*", 50)],
  ["many places to remember, with few characters", limited("(.*a.*b.*c.*d){40}", 500)],
  ["large counts with few characters", limited("((a{0,1000}b?){0,1000}c?){0,1000}", 900)],
  ["sixty-four groups with few characters", limited(`${"(".repeat(60)}a${"{0,9}b?)".repeat(60)}`, 99)],
  ["a text in all its escapes", schema({ type: "string", pattern: String.raw`(\\|\\\\|"|.)*` })],
];

/** Already its first position has too many continuations. */
export const tooAmbiguous = grammar("root ::= (a b){1000000}", 'a ::= "x"? | b', 'b ::= "y"? | a a');

/** Sources that take long in readers that backtrack. */
export const slowSources: readonly (readonly [name: string, output: StructuredOutput])[] = [
  ["comments that could be one or many", grammar(`root ::= a ${"#".repeat(200_000)}`, 'b "x"', 'a ::= "a"')],
  ["blanks within a count", grammar(`root ::= "a"{1,${" ".repeat(200_000)}x`)],
  ["a name without end", grammar(`root ::= ${"a".repeat(200_000)}`)],
  ["a string without end", grammar(`root ::= "${"a".repeat(200_000)}`)],
  ["brackets that are not closed", regex("[a".repeat(100_000))],
  ["groups that are not closed", regex("(".repeat(200_000))],
  ["braces", regex(`a${"{1".repeat(100_000)}`)],
];

function manyProperties(count: number, inner: object): object {
  return { type: "object", properties: Object.fromEntries(times(count, (i) => [`property${i}`, inner])) };
}
