import { expect, test } from "vitest";

import { readGrammar } from "../../../engine/structured-output/grammar-reader.ts";
import { findEndlessRule } from "../../../engine/structured-output/rule-properties.ts";

test.for([
  ["may leave itself out", 'root ::= "a" root | ""'],
  ["is called before it is known to end", 'root ::= a b\na ::= b | a\nb ::= c\nc ::= "c"'],
  ["goes on with itself as often as one likes", 'root ::= "a" (root "b")*'],
])("a rule that %s ends", ([, grammar]) => {
  expect(findEndlessRule(readGrammar(grammar!))).toBeNull();
});

test.for([
  ["is itself", "root ::= root", "root"],
  ["is another that is it", 'root ::= a | "b"\na ::= b\nb ::= a', "a"],
  ["goes on with itself", 'root ::= "a" root', "root"],
  ["needs itself once at least", 'root ::= "b" | a\na ::= "a" a+', "a"],
  ["takes no character", 'root ::= "b" | a\na ::= [^\\0-\\U0010FFFF]', "a"],
])("a rule that %s is endless", ([, grammar, name]) => {
  expect(findEndlessRule(readGrammar(grammar!))).toBe(name);
});

test("a long chain of rules is followed in either order", () => {
  const chain = Array.from({ length: 20_000 }, (_, index) => `r${index} ::= r${index + 1}`);
  const rules = [...chain, `r${chain.length} ::= "a"`];
  for (const lines of [rules, rules.toReversed()]) {
    expect(findEndlessRule(readGrammar(`root ::= r0\n${lines.join("\n")}`))).toBeNull();
  }
});
