/**
 * Each piece of an output takes a bounded time, however much text is held back. A parser that looks at all held text for
 * each piece needs minutes for these outputs.
 */
import { expect, test } from "vitest";

import { reasoningFormats, toolCallFormats } from "../../../../functions/generation/parsed-output/model-formats.ts";
import { parseAll, parseDeltas, parsingOf } from "./parsed.ts";

const NUM_PIECES = 250_000;

const longText = (start: string, piece: string, end: string): string[] => [
  start,
  ...Array.from({ length: NUM_PIECES }, () => piece),
  end,
];

test.for([...toolCallFormats])("$name: white space of a million characters stays in the text", (format) => {
  const pieces = longText("a", "\n \n ", "b");
  expect(parseAll(parsingOf(format), pieces).content === pieces.join("")).toBe(true);
});

test.for([...toolCallFormats])("$name: white space of a million characters is no call", (format) => {
  const pieces = longText(format.specialTokens[0]!, "    ", "b");
  expect(parseAll(parsingOf(format), pieces)).toMatchObject({ calls: [] });
});

test.for([...reasoningFormats])("$name: white space of a million characters may be thought", (reasoning) => {
  const parsing = parsingOf(toolCallFormats[0]!, { reasoning });
  const pieces = longText("a", "\n\n\n\n", "b");
  const text = pieces.join("");
  const thinking = [
    reasoning.start,
    ...longText("", " \t \n", ""),
    ...pieces,
    reasoning.end,
    ...longText("", "\n", ""),
  ];
  const parsed = parseAll(parsing, [...thinking, ...pieces], "before");
  expect(parsed.reasoning === text).toBe(true);
  expect(parsed.content === text).toBe(true);
});

test("white space of a million characters before an answer without thinking is part of it", () => {
  const parsing = parsingOf(toolCallFormats[0]!, { reasoning: reasoningFormats[0]! });
  const pieces = longText("", "\n\n\n\n", "a");
  expect(parseAll(parsing, pieces, "before").content === pieces.join("")).toBe(true);
});

test("a list of calls of a million characters is read", () => {
  const pieces = Array.from({ length: 100_000 }, () => "stop-it(), ");
  const pythonic = toolCallFormats.find(({ name }) => name === "pythonic")!;
  const deltas = parseDeltas(parsingOf(pythonic), ["[", ...pieces, "stop-it()]"]);
  expect(deltas.flatMap(({ toolCalls = [] }) => toolCalls.filter((call) => call.start))).toHaveLength(100_001);
});
