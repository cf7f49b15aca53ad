import * as fc from "fast-check";
import { expect, test } from "vitest";

import { extraArgumentLimits, isExtraArguments } from "../../../../engine/contract/extra-arguments.ts";
import { extraArguments } from "../../../../functions/generation/schemas/extra-arguments.ts";

const { arguments: maxArguments, nameCharacters, textCharacters, listEntries } = extraArgumentLimits;

function acceptedBy(value: unknown): readonly [settings: boolean, requests: boolean] {
  return [isExtraArguments(value), extraArguments.safeParse(value).success];
}

function withArguments(count: number): unknown {
  return Object.fromEntries(Array.from({ length: count }, (_, index) => [`argument_${index}`, index]));
}

test.for<[description: string, value: unknown, isAccepted: boolean]>([
  ["no arguments", {}, true],
  ["scalars and lists", { a: 1, b: "text", c: true, d: [1, "text", false], e: [] }, true],
  ["a list", [1], false],
  ["null", null, false],
  ["a null argument", { a: null }, false],
  ["a nested object", { a: { b: 1 } }, false],
  ["a nested list", { a: [[1]] }, false],
  ["the name __proto__", JSON.parse('{"__proto__": 1}'), false],
  ["the most arguments", withArguments(maxArguments), true],
  ["one argument more", withArguments(maxArguments + 1), false],
  ["the longest name", { ["n".repeat(nameCharacters)]: 1 }, true],
  ["a longer name", { ["n".repeat(nameCharacters + 1)]: 1 }, false],
  ["the longest text", { a: "x".repeat(textCharacters) }, true],
  ["a longer text", { a: "x".repeat(textCharacters + 1) }, false],
  ["a longer text in a list", { a: ["x".repeat(textCharacters + 1)] }, false],
  ["the longest list", { a: Array.from({ length: listEntries }, () => 0) }, true],
  ["a longer list", { a: Array.from({ length: listEntries + 1 }, () => 0) }, false],
])("settings and requests agree on %s", ([, value, isAccepted]) => {
  expect(acceptedBy(value)).toEqual([isAccepted, isAccepted]);
});

test("settings and requests agree on any JSON", () => {
  const anyArguments = fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 2 }));
  fc.assert(
    fc.property(fc.oneof(anyArguments, fc.jsonValue()), (value) => {
      const [settings, requests] = acceptedBy(value);
      expect(settings).toBe(requests);
    }),
  );
});
