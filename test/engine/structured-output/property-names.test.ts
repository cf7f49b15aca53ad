/** Objects with many properties, whose names begin alike. */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { GrammarRow } from "../../../engine/structured-output/grammar-row.ts";
import { LoadedGrammars } from "../../../engine/structured-output/loaded-grammars.ts";
import { createTokenBitmask } from "../../../engine/structured-output/token-bitmask.ts";
import { compileOnce, Reader, shapesVocabulary } from "./grammars.ts";

const readerOf = (schema: object): Reader =>
  new Reader({ kind: "json-schema", schema: JSON.stringify({ type: "object", ...schema }) });
const textOf = (names: readonly string[]): Buffer => Buffer.from(JSON.stringify(Object.fromEntries(named(names))));
const named = (names: readonly string[]) => names.map((name) => [name, null] as const);

const name = fc.array(fc.constantFrom("a", "b", '"', "\\", "é", "😀", "😁", "_1"), { maxLength: 4 });
const names = fc.uniqueArray(
  name.map((parts) => parts.join("")),
  { minLength: 1, maxLength: 12 },
);

test("a text is allowed if it has the required properties, in order, and as many as the bounds say", () => {
  const choices = fc.record({
    properties: names,
    isRequired: fc.array(fc.boolean(), { minLength: 12, maxLength: 12 }),
    isPresent: fc.array(fc.boolean(), { minLength: 12, maxLength: 12 }),
    min: fc.option(fc.nat(4), { nil: undefined }),
    max: fc.option(fc.nat(8), { nil: undefined }),
  });
  fc.assert(
    fc.property(choices, ({ properties, isRequired, isPresent, min, max }) => {
      // A few are required, or most texts would be wrong.
      const required = properties.filter((_, index) => isRequired[index] && index % 3 === 0);
      fc.pre(Math.max(required.length, min ?? 0) <= (max ?? Infinity) && properties.length >= (min ?? 0) && max !== 0);
      const present = properties.filter((_, index) => isPresent[index]);
      const isAllowed =
        required.every((each) => present.includes(each)) &&
        present.length >= (min ?? 0) &&
        present.length <= (max ?? Infinity);
      const bounds = {
        ...(min !== undefined && { minProperties: min }),
        ...(max !== undefined && { maxProperties: max }),
      };
      const schema = { properties: Object.fromEntries(properties.map((each) => [each, { type: "null" }])), required };
      const verdict = readerOf({ ...schema, ...bounds }).judge(textOf(present));
      expect(verdict === "whole").toBe(isAllowed);
    }),
    { numRuns: 500 },
  );
});

test("properties in another order, twice, and beginnings of names are not allowed", () => {
  const reader = readerOf({ properties: Object.fromEntries(named(["ab", "abc", "b"]).map(([each]) => [each, {}])) });
  expect(reader.judge(Buffer.from('{"ab": 1, "abc": 1, "b": 1}'))).toBe("whole");
  for (const text of ['{"abc": 1, "ab"', '{"ab": 1, "ab"', '{"a"', '{"abcd', '{"b": 1, "']) {
    expect(reader.judge(Buffer.from(text))).toBe("none");
  }
});

describe("a thousand optional properties", () => {
  const properties = Object.fromEntries(
    Array.from({ length: 1_000 }, (_, index) => [`field_${index}`, { anyOf: [{ type: "integer" }, { type: "null" }] }]),
  );

  test.for<[string, number]>([
    ["all", 1],
    ["every third", 3],
  ])("%s can be written, within the bounds of work", async ([, step]) => {
    const schema = JSON.stringify({ type: "object", properties });
    const grammar = await compileOnce(shapesVocabulary, { kind: "json-schema", schema });
    const { tokenizer, vocabSize, eosTokenIds } = shapesVocabulary;
    const present = Object.keys(properties).filter((_, index) => index % step === 0);
    const text = JSON.stringify(
      Object.fromEntries(present.map((each, index) => [each, index % 4 === 0 ? null : index])),
    );
    const given = (await tokenizer.encode(text, { addSpecialTokens: false }))!;
    const tokenIds: number[] = [];
    const row = new GrammarRow(new LoadedGrammars().open(grammar), grammar, tokenIds);
    const bitmask = createTokenBitmask(vocabSize);
    for (const tokenId of [...given, eosTokenIds[0]!]) {
      row.acceptNewTokens();
      row.fillBitmask(bitmask);
      expect(row.failure).toBe(null);
      expect((bitmask[tokenId >> 5]! >> (tokenId & 31)) & 1).toBe(1);
      tokenIds.push(tokenId);
    }
  });
});
