import * as fc from "fast-check";
import { expect, test } from "vitest";

import { TextOffsets } from "../../../functions/generation/text-offsets.ts";

function offsetsOf(tokens: readonly (readonly number[])[]): number[] {
  const offsets = new TextOffsets();
  return tokens.map((bytes) => offsets.next(bytes));
}

const tokensOf = (...texts: readonly string[]) => texts.map((text) => Array.from(Buffer.from(text)));

test.for<readonly [string, readonly (readonly number[])[], readonly number[]]>([
  ["whole characters", tokensOf("\u{1f600}a", "é", "\ufeff", "b"), [0, 2, 3, 4]],
  ["a character of four tokens", [[0xf0], [0x9f], [0x98], [0x80], [0x61]], [0, 0, 0, 0, 1]],
  ["a token with the end of one character and the next", [[0xc3], [0xa9, 0x62], [0x63]], [0, 0, 2]],
  ["a character without its end", [[0x61, 0xf0], [0x62], [0x63]], [0, 2, 3]],
  ["bytes that begin no character", [[0x80], [0x80], [0x61]], [0, 1, 2]],
  ["tokens without text", [[], [0xc3], [], [0xa9], [], [0x61]], [0, 0, 0, 0, 1, 1]],
])("%s", ([, tokens, expected]) => {
  expect(offsetsOf(tokens)).toEqual(expected);
});

test("a byte has the offset of its character, however the text is divided into tokens", () => {
  const lengths = fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1 });
  fc.assert(
    fc.property(fc.string({ unit: "grapheme" }), lengths, (text, [...cuts]) => {
      const places = Array.from(text).flatMap((character, index) => Array.from(Buffer.from(character), () => index));
      const bytes = [...Buffer.from(text)];
      const starts: number[] = [];
      const tokens: number[][] = [];
      for (let start = 0, turn = 0; start < bytes.length; start += cuts[turn++ % cuts.length]!) {
        starts.push(start);
        tokens.push(bytes.slice(start, start + cuts[turn % cuts.length]!));
      }
      expect(offsetsOf(tokens)).toEqual(starts.map((start) => places[start]));
    }),
  );
});
