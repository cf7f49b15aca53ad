import * as fc from "fast-check";
import { expect, test } from "vitest";

import { readGrammar } from "../../../engine/structured-output/grammar-reader.ts";
import { readLanguage } from "../../../engine/structured-output/language.ts";
import type { Position } from "../../../engine/structured-output/reading.ts";
import { Recognizer } from "../../../engine/structured-output/recognizer.ts";
import { findEndlessRule } from "../../../engine/structured-output/rule-properties.ts";
import type { StructuredOutput } from "../../../engine/structured-output/structured-output.ts";
import { addTokens, createTokenBitmask } from "../../../engine/structured-output/token-bitmask.ts";
import { TokenMaskCache } from "../../../engine/structured-output/token-mask-cache.ts";
import type { MaskKey, TokenMask } from "../../../engine/structured-output/token-mask-cache.ts";
import { TokenMasks } from "../../../engine/structured-output/token-masks.ts";
import { buildTokenTries } from "../../../engine/structured-output/token-trie.ts";
import { WorkMeter } from "../../../engine/structured-output/work-meter.ts";
import { findEnding } from "./endings.ts";
import { Reader, createRandom, tokensOf, toProgram } from "./grammars.ts";
import { Sketcher } from "./sketches.ts";

/** Pieces of `Sketcher`'s languages, cut anywhere, also within characters. */
const characters = fc.constantFrom(
  ...["abc", "ab", "01", "0123456789", "aé中😀", "eèéê", '"{}[]:, ax1'].map((text) => Array.from(text)),
);
const piece = fc
  .tuple(
    characters.chain((alphabet) => fc.array(fc.constantFrom(...alphabet), { minLength: 1, maxLength: 6 })),
    fc.constantFrom(0, 0, 0, 1, 2),
    fc.constantFrom(0, 0, 0, 1, 2),
  )
  .map(([letters, cutStart, cutEnd]) => {
    const bytes = Buffer.from(letters.join(""));
    return bytes.subarray(cutStart, Math.max(cutStart, bytes.length - cutEnd));
  });
/** Some longer than the limit of each trie. */
const longPiece = fc
  .tuple(fc.constantFrom("a", "ab", "é", "0"), fc.integer({ min: 5, max: 40 }))
  .map(([text, count]) => Buffer.from(text.repeat(count)));
const vocabulary = fc.array(fc.oneof({ weight: 4, arbitrary: piece }, longPiece), { minLength: 1, maxLength: 120 });

const schemas: object[] = [
  { type: "object", properties: { a: { type: "string", maxLength: 20 }, b: { enum: ["é", "ab"] } }, required: ["a"] },
  { type: "array", items: { type: "integer", minimum: -9, maximum: 120 }, minItems: 1, maxItems: 40 },
  {},
];

/** With a count far above, close to, or below the lengths of tokens. */
function countedPattern(sketcher: Sketcher): string {
  const { pattern } = sketcher.sketchLanguage(1);
  const [min, max] = [sketcher.pick([0, 1, 7, 40]), sketcher.pick([40, 41, 300])];
  return `[a-cé]{${min},${max}}(?:${pattern}){${sketcher.pick([0, 2])},${sketcher.pick([9, 17, 33])}}`;
}

function sketch(
  seed: number,
  kind: "regex" | "counted" | "grammar" | "recursive" | "words" | "schema",
): StructuredOutput {
  const sketcher = new Sketcher(createRandom(seed));
  switch (kind) {
    case "regex":
      return { kind: "regex", pattern: sketcher.sketchLanguage(3).pattern };
    case "counted":
      return { kind: "regex", pattern: countedPattern(sketcher) };
    case "grammar":
      return { kind: "grammar", grammar: sketcher.sketchLanguage(3).grammar };
    case "recursive":
      return { kind: "grammar", grammar: sketcher.recursiveGrammar() };
    case "words":
      return { kind: "choice", choices: sketcher.words(60) };
    case "schema":
      return { kind: "json-schema", schema: JSON.stringify(sketcher.pick(schemas)) };
  }
}

test("a token is allowed exactly if some text continues with its bytes", async () => {
  let numAllowed = 0;
  let numForbidden = 0;
  const kinds = fc.constantFrom("regex", "counted", "grammar", "recursive", "words", "schema");
  await fc.assert(
    fc.asyncProperty(vocabulary, fc.nat(), kinds, fc.infiniteStream(fc.nat()), async (drawn, seed, kind, choices) => {
      const output = sketch(seed, kind);
      // Some recursive grammars take time proportional to the third power of the length.
      const tokens = kind === "recursive" ? drawn.map((token) => token.subarray(0, 6)) : drawn;
      if (output.kind === "grammar" && findEndlessRule(readGrammar(output.grammar)) !== null) return;
      const meter = new WorkMeter();
      meter.allow(Infinity);
      const recognizer = new Recognizer(toProgram(readLanguage(output)), meter);
      const tokenEnds = Uint32Array.from(
        tokens.map(
          (
            (sum) => (token) =>
              (sum += token.length)
          )(0),
        ),
      );
      const tries = await buildTokenTries({ tokenBytes: Buffer.concat(tokens), tokenEnds }, new Set());
      const cache = new TokenMaskCache(2 ** 20);
      const masks = new TokenMasks({ recognizer, tries, vocabSize: tokens.length, meter, cache });
      // A separate recognizer judges, so that neither profits from the other's caches.
      const judge = new Reader(output);
      let position = recognizer.start();
      let judged = judge.start();
      for (let step = 0; step < 8; step++) {
        const bitmask = createTokenBitmask(tokens.length);
        addTokens(bitmask, masks.at(position));
        const allowed = tokensOf(bitmask, tokens.length);
        const expected = [...tokens.keys()].filter(
          (tokenId) => tokens[tokenId]!.length > 0 && judge.advance(judged, tokens[tokenId]!) !== null,
        );
        expect(allowed, `for ${JSON.stringify(output)}`).toEqual(expected);
        numAllowed += allowed.length;
        numForbidden += tokens.length - allowed.length;
        if (allowed.length === 0) return;
        const chosen = tokens[allowed[choices.next().value! % allowed.length]!]!;
        for (const byte of chosen) position = recognizer.advance(position, byte)!;
        judged = judge.advance(judged, chosen)!;
      }
    }),
    { numRuns: 200 },
  );
  expect(Math.min(numAllowed, numForbidden)).toBeGreaterThan(300);
});

test.for(["[a-c]{0,300}x", "[a-c]{300}x", "[a-c]{12,20}", "([a-c]{3}){2,9}x?", "([a-c]{1,4}d){0,5}"])(
  "counts close to the lengths of tokens are exact in the masks of %s",
  async (pattern) => {
    const tokens = Array.from({ length: 40 }, (_, index) =>
      ["a", "abca"].map((text) => text.repeat(40).slice(0, index + 1)),
    )
      .flat()
      .map((text) => Buffer.from(text));
    const meter = new WorkMeter();
    meter.allow(Infinity);
    const output: StructuredOutput = { kind: "regex", pattern };
    const recognizer = new Recognizer(toProgram(readLanguage(output)), meter);
    const tokenEnds = Uint32Array.from(
      tokens.map(
        (
          (sum) => (token) =>
            (sum += token.length)
        )(0),
      ),
    );
    const tries = await buildTokenTries({ tokenBytes: Buffer.concat(tokens), tokenEnds }, new Set());
    const vocabSize = tokens.length;
    const masks = new TokenMasks({ recognizer, tries, vocabSize, meter, cache: new TokenMaskCache(2 ** 20) });
    const judge = new Reader(output);
    let [position, judged] = [recognizer.start(), judge.start()];
    for (let length = 0; length < 25; length++) {
      const bitmask = createTokenBitmask(vocabSize);
      addTokens(bitmask, masks.at(position));
      const expected = [...tokens.keys()].filter((tokenId) => judge.advance(judged, tokens[tokenId]!) !== null);
      expect(tokensOf(bitmask, vocabSize)).toEqual(expected);
      const next = judge.advance(judged, Buffer.from("a"));
      if (next === null) return;
      [position, judged] = [recognizer.advance(position, 0x61)!, next];
    }
  },
);

/** Whether a text can be completed from a position that recurs often. */
function canBeCompleted(reader: Reader, position: Position): boolean {
  const bytes = Array.from({ length: 256 }, (_, byte) => byte);
  const seen = new Set([position]);
  for (const next of seen) {
    if (next.canEnd) return true;
    if (seen.size > 5000) throw new Error("5000 positions, and none of them is an end");
    for (const byte of bytes) {
      const further = reader.advance(next, [byte]);
      if (further !== null) seen.add(further);
    }
  }
  return false;
}

test("every text that has started can be completed", () => {
  fc.assert(
    fc.property(fc.nat(), fc.constantFrom("regex", "grammar", "words", "schema"), (seed, kind) => {
      const output = sketch(seed, kind);
      if (output.kind === "grammar" && findEndlessRule(readGrammar(output.grammar)) !== null) return;
      const reader = new Reader(output);
      const { position } = startText(reader, 'abc0123é中😀eèê"{}[]:, x_tfn-', 6, createRandom(seed));
      expect(canBeCompleted(reader, position), `for ${JSON.stringify(output)}`).toBe(true);
    }),
    { numRuns: 120 },
  );
});

test("every text of a recursive grammar that has started is completed by an ending that the grammar alone gives", () => {
  fc.assert(
    fc.property(fc.nat(), (seed) => {
      const output = sketch(seed, "recursive");
      const language = readLanguage(output);
      if (findEndlessRule(language) !== null) return;
      const reader = new Reader(output);
      const { text, position } = startText(reader, "abc", 5, createRandom(seed));
      const ending = findEnding(language, text);
      const subject = `${JSON.stringify(text)} for ${JSON.stringify(output)}`;
      expect(ending, subject).not.toBeNull();
      expect(reader.advance(position, Buffer.from(ending!))?.canEnd, `${ending} after ${subject}`).toBe(true);
    }),
    { numRuns: 500 },
  );
});

/** Takes steps at random, as long as the reader allows one. */
function startText(
  reader: Reader,
  characters: string,
  maxSteps: number,
  random: () => number,
): { text: string; position: Position } {
  let [text, position] = ["", reader.start()];
  for (let step = 0; step < maxSteps; step++) {
    const nexts = Array.from(characters).flatMap((character) => {
      const next = reader.advance(position, Buffer.from(character));
      return next === null ? [] : [{ text: text + character, position: next }];
    });
    if (nexts.length === 0) break;
    ({ text, position } = nexts[Math.floor(random() * nexts.length)]!);
  }
  return { text, position };
}

test("the mask cache keeps the most recently used masks, within its bytes", () => {
  const cache = new TokenMaskCache(3 * MASK_BYTES);
  const keys = createKeys(5);
  for (const key of keys.slice(0, 3)) cache.add(key, createMask());
  expect(cache.get(keys[0]!)).toBeDefined();
  for (const key of keys.slice(3)) cache.add(key, createMask());
  expect(keys.map((key) => cache.has(key))).toEqual([true, false, false, true, true]);
  expect(cache.numBytes).toBe(3 * MASK_BYTES);
});

test("the mask cache removes the masks of one grammar and keeps those of another", () => {
  const cache = new TokenMaskCache(3 * MASK_BYTES);
  const [removed, kept] = [createKeys(3), createKeys(1)];
  for (const key of [...removed, ...kept]) cache.add(key, createMask());
  cache.removeAll(removed[0]!.group);
  expect([...removed, ...kept].map((key) => cache.has(key))).toEqual([false, false, false, true]);
  expect(cache.numBytes).toBe(MASK_BYTES);
  for (const key of removed) cache.add(key, createMask());
  expect(cache.numBytes).toBe(3 * MASK_BYTES);
});

/** An entry, and 100 token ids. */
const MASK_BYTES = 320 + 4 * 100;

function createMask(): TokenMask {
  return { tokens: { kind: "ids", ids: new Int32Array(100) }, exits: null };
}

/** Of one grammar. */
function createKeys(count: number): readonly MaskKey[] {
  const group = new Set<MaskKey>();
  return Array.from({ length: count }, () => ({ group }));
}
