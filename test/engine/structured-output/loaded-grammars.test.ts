import { expect, test } from "vitest";

import { collectGarbage } from "../../../engine/runtime/collect-garbage.ts";
import { compileProgram } from "../../../engine/structured-output/compiled-grammar.ts";
import type { CompiledGrammar } from "../../../engine/structured-output/compiled-grammar.ts";
import { GrammarRow } from "../../../engine/structured-output/grammar-row.ts";
import { createGrammarVocabulary } from "../../../engine/structured-output/grammar-vocabulary.ts";
import { LoadedGrammars } from "../../../engine/structured-output/loaded-grammars.ts";
import type { LoadedGrammar } from "../../../engine/structured-output/loaded-grammars.ts";
import { createTokenBitmask } from "../../../engine/structured-output/token-bitmask.ts";
import { shapesVocabulary } from "./grammars.ts";

/** As in loaded-grammars.ts and recognizer.ts. */
const MAX_NUM_IDLE = 8;
const MAX_POSITIONS = 4096;
const TEXT_LENGTH = 20;

const { tokenizer, vocabSize, eosTokenIds } = shapesVocabulary;
const vocabulary = await createGrammarVocabulary(tokenizer, vocabSize, eosTokenIds);
const letter = tokenizer.tokenId("a")!;

function compile(maxLength: number): CompiledGrammar {
  const pattern = `[a-z]{0,${maxLength}}x`;
  return { id: pattern, description: pattern, program: compileProgram({ kind: "regex", pattern }), vocabulary };
}

/** Computes the masks of a text, as a request does. */
function follow(loaded: LoadedGrammar, grammar: CompiledGrammar, length = TEXT_LENGTH): void {
  const tokenIds: number[] = [];
  const row = new GrammarRow(loaded, grammar, tokenIds);
  const bitmask = createTokenBitmask(vocabSize);
  for (let index = 0; index < length; index++) {
    row.acceptNewTokens();
    row.fillBitmask(bitmask);
    tokenIds.push(letter);
  }
  expect(row.failure).toBeNull();
}

function use(grammars: LoadedGrammars, grammar: CompiledGrammar): void {
  const loaded = grammars.open(grammar);
  follow(loaded, grammar);
  grammars.release(grammar);
}

test("the masks of an unloaded grammar leave the cache", () => {
  const grammars = new LoadedGrammars();
  for (let index = 0; index < MAX_NUM_IDLE; index++) use(grammars, compile(100 + index));
  const bytesOfIdle = grammars.maskBytes;
  expect(bytesOfIdle).toBeGreaterThan(0);
  for (let index = 0; index < 5 * MAX_NUM_IDLE; index++) use(grammars, compile(200 + index));
  expect(grammars.size).toBe(MAX_NUM_IDLE);
  expect(grammars.maskBytes).toBe(bytesOfIdle);
});

test("the positions of an unloaded grammar can be collected", async () => {
  const grammars = new LoadedGrammars();
  const positions = (() => {
    const first = compile(100);
    const loaded = grammars.open(first);
    follow(loaded, first);
    const start = loaded.recognizer.start();
    grammars.release(first);
    return [start, loaded.recognizer.advance(start, 0x61)!].map((position) => new WeakRef(position));
  })();
  for (let index = 0; index < MAX_NUM_IDLE; index++) use(grammars, compile(200 + index));
  // A WeakRef keeps its target until the end of the turn in which it was created or read.
  await new Promise((resolve) => setImmediate(resolve));
  await collectGarbage();
  expect(positions.map((position) => position.deref())).toEqual([undefined, undefined]);
});

test("masks of positions that a grammar has dropped leave the cache", () => {
  const grammars = new LoadedGrammars();
  const grammar = compile(2 * MAX_POSITIONS);
  const loaded = grammars.open(grammar);
  const { recognizer, masks, meter } = loaded;
  meter.allow(Infinity);
  let position = recognizer.start();
  let bytesBefore = 0;
  while (recognizer.numResets === 0) {
    masks.at(position);
    bytesBefore = grammars.maskBytes;
    position = recognizer.advance(position, 0x61)!;
  }
  masks.at(position);
  expect(grammars.maskBytes).toBeLessThan(bytesBefore / 100);
});

test("a grammar in use keeps its masks when others are unloaded", () => {
  const grammars = new LoadedGrammars();
  const grammar = compile(50);
  const loaded = grammars.open(grammar);
  follow(loaded, grammar);
  const numSpent = loaded.meter.numSpent;
  for (let index = 0; index < 2 * MAX_NUM_IDLE; index++) use(grammars, compile(200 + index));
  follow(loaded, grammar);
  // The second text costs a fraction of the first, because all masks are known.
  expect(loaded.meter.numSpent - numSpent).toBeLessThan(numSpent / 10);
});
