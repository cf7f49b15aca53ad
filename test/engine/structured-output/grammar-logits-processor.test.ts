import * as fc from "fast-check";
import { expect, test } from "vitest";

import { createSamplingParams } from "../../../engine/contract/sampling-params.ts";
import type { SamplingParams } from "../../../engine/contract/sampling-params.ts";
import { InputBatch } from "../../../engine/core/input-batch.ts";
import { StepLogits } from "../../../engine/sampling/step-logits.ts";
import { Sequence } from "../../../engine/scheduler/sequence.ts";
import type { CompiledGrammar } from "../../../engine/structured-output/compiled-grammar.ts";
import { GrammarCompiler } from "../../../engine/structured-output/grammar-compiler.ts";
import { GrammarLogitsProcessor } from "../../../engine/structured-output/grammar-logits-processor.ts";
import { createGrammarVocabulary } from "../../../engine/structured-output/grammar-vocabulary.ts";
import { engineConfig } from "../sampling/create-sampler.ts";
import { allowedTokens, compileOnce, createRandom, load, shapesVocabulary } from "./grammars.ts";

const { vocabSize, eosTokenIds, tokenizer } = shapesVocabulary;
const maxNumRequests = 8;
const grammars = await Promise.all([
  compileOnce(shapesVocabulary, { kind: "regex", pattern: "[a-f]{3,9}" }),
  compileOnce(shapesVocabulary, { kind: "choice", choices: ["red circle", "red square", "blue"] }),
  compileOnce(shapesVocabulary, { kind: "json-schema", schema: '{"type":"array","items":{"type":"integer"}}' }),
]);

/** A persistent batch whose rows have grammars. */
class GrammarBatch {
  readonly batch = new InputBatch();
  readonly logits = new StepLogits(maxNumRequests, vocabSize);
  readonly #grammarOf = new Map<SamplingParams, CompiledGrammar | null>();
  readonly processor = new GrammarLogitsProcessor(engineConfig, {
    vocabSize,
    grammarOf: ({ params }) => this.#grammarOf.get(params) ?? null,
  });
  #numCreated = 0;

  create(grammar: CompiledGrammar | null): Sequence {
    const samplingParams = createSamplingParams();
    this.#grammarOf.set(samplingParams, grammar);
    const requestId = String(this.#numCreated++);
    return new Sequence({
      requestId,
      promptTokenIds: [1],
      images: [],
      badWordsTokenIds: [],
      grammar,
      samplingParams,
      seed: 0,
      cacheSalt: null,
    });
  }

  grammarOf(sequence: Sequence): CompiledGrammar | null {
    return this.#grammarOf.get(sequence.samplingParams) ?? null;
  }

  /** The tokens that each row may sample next. */
  step(): number[][] {
    this.logits.numRequests = this.batch.numRows;
    this.processor.updateState(this.batch.takeBatchUpdate());
    this.logits.data.fill(0.5);
    this.processor.apply(this.logits);
    return this.batch.sequences.map((_, rowIndex) =>
      Array.from(this.logits.row(rowIndex).keys()).filter((id) => this.logits.row(rowIndex)[id] === 0.5),
    );
  }
}

const loaded = new Map(grammars.map((grammar) => [grammar, load(grammar)]));

/** The tokens that can follow the output, from a new matcher. */
function naivelyAllowed(grammar: CompiledGrammar | null, outputTokenIds: readonly number[]): number[] {
  if (grammar === null) return Array.from({ length: vocabSize }, (_, id) => id);
  const matcher = loaded.get(grammar)!();
  for (const tokenId of outputTokenIds) matcher.accept(tokenId);
  return matcher.isTerminated ? [...eosTokenIds] : allowedTokens(matcher, vocabSize);
}

test("rows keep their grammars through adds, finishes, preemptions, condensing and swaps", () => {
  const command = fc.record({
    numAdded: fc.nat(3),
    leaving: fc.array(fc.nat(7), { maxLength: 3 }),
    returning: fc.array(fc.nat(7), { maxLength: 2 }),
    swaps: fc.array(fc.tuple(fc.nat(7), fc.nat(7)), { maxLength: 2 }),
  });
  fc.assert(
    fc.property(fc.array(command, { maxLength: 25 }), fc.nat(), (commands, seed) => {
      const random = createRandom(seed);
      const rows = new GrammarBatch();
      const preempted: Sequence[] = [];
      for (const { numAdded, leaving, returning, swaps } of commands) {
        const before = [...rows.batch.sequences];
        const left = new Set(leaving.flatMap((index) => before[index] ?? []));
        const returned = new Set(returning.flatMap((index) => preempted[index] ?? []));
        const added = Array.from({ length: numAdded }, () =>
          rows.create([...grammars, null][Math.floor(random() * 4)]!),
        );
        const staying = before.filter((sequence) => !left.has(sequence));
        rows.batch.replace([...staying, ...returned, ...added].slice(0, maxNumRequests));
        preempted.push(...left);
        const { numRows } = rows.batch;
        for (const [from, to] of swaps) if (from < numRows && to < numRows && from !== to) rows.batch.swap(from, to);
        const allowed = rows.step();
        rows.batch.sequences.forEach((sequence, rowIndex) => {
          expect(allowed[rowIndex]).toEqual(naivelyAllowed(rows.grammarOf(sequence), sequence.outputTokenIds));
          sequence.outputTokenIds.push(allowed[rowIndex]![Math.floor(random() * allowed[rowIndex]!.length)]!);
        });
      }
    }),
    { numRuns: 40 },
  );
});

test("after the end only end tokens are allowed, so a request that ignores them keeps its text", () => {
  const rows = new GrammarBatch();
  const sequence = rows.create(grammars[1]);
  rows.batch.replace([sequence]);
  sequence.outputTokenIds.push(...Array.from("blue", (letter) => tokenizer.tokenId(letter)!));
  expect(rows.step()).toEqual([eosTokenIds]);
  for (let round = 0; round < 3; round++) {
    sequence.outputTokenIds.push(eosTokenIds[0]!);
    expect(rows.step()).toEqual([eosTokenIds]);
  }
  expect(rows.processor.failureOf(0)).toBeNull();
});

test("a token that the grammar forbids ends only its row, with an error", () => {
  const rows = new GrammarBatch();
  const [strayed, faithful] = [rows.create(grammars[0]), rows.create(grammars[0])];
  rows.batch.replace([strayed, faithful]);
  rows.step();
  strayed.outputTokenIds.push(tokenizer.tokenId("z")!);
  faithful.outputTokenIds.push(tokenizer.tokenId("a")!);
  const allowed = rows.step();
  expect(allowed[0]).toEqual([]);
  expect(rows.processor.failureOf(0)).toMatchObject({
    code: "runtime_failed",
    message: `The structured output regex "[a-f]{3,9}" does not allow the token ${tokenizer.tokenId("z")} that was chosen.`,
  });
  expect(allowed[1]).toEqual(naivelyAllowed(grammars[0], faithful.outputTokenIds));
  expect(rows.processor.failureOf(1)).toBeNull();
});

test("a token that a later processor allowed again is stopped before it is emitted, also a premature end", () => {
  const rows = new GrammarBatch();
  const sequences = [rows.create(grammars[0]), rows.create(grammars[0]), rows.create(grammars[0]), rows.create(null)];
  rows.batch.replace(sequences);
  rows.step();
  const [a, z] = [tokenizer.tokenId("a")!, tokenizer.tokenId("z")!];
  const failures = [a, z, eosTokenIds[0]!, z].map((tokenId, rowIndex) =>
    rows.processor.failureWith(rowIndex, tokenId, rowIndex === 2 ? ["first", "second"] : []),
  );
  expect(failures).toEqual([
    null,
    expect.objectContaining({
      code: "runtime_failed",
      message: expect.stringContaining(`does not allow the token ${z}`),
    }),
    expect.objectContaining({
      code: "logits_processor_failed",
      message: `The structured output regex "[a-f]{3,9}" does not allow the token ${eosTokenIds[0]} that was chosen after the logits processors first, second.`,
    }),
    null,
  ]);
  sequences[0]!.outputTokenIds.push(a);
  expect(rows.step()[0]).toEqual(naivelyAllowed(grammars[0], [a]));
});

test("a form that no token of the vocabulary can start ends its row with an error", async () => {
  const rows = new GrammarBatch();
  const texts = { tokenBytes: () => Buffer.from("a"), isSpecial: () => false };
  const vocabulary = await createGrammarVocabulary(texts, shapesVocabulary.vocabSize, shapesVocabulary.eosTokenIds);
  await using compiler = new GrammarCompiler({ loadVocabulary: async () => vocabulary });
  rows.batch.replace([rows.create(await compiler.compile({ kind: "choice", choices: ["b"] }))]);
  expect(rows.step()).toEqual([[]]);
  expect(rows.processor.failureOf(0)?.message).toContain("allows no token");
});

test("a batch without structured output is not changed", () => {
  const rows = new GrammarBatch();
  rows.batch.replace([rows.create(null), rows.create(null)]);
  const everyToken = Array.from({ length: rows.logits.vocabSize }, (_, tokenId) => tokenId);
  expect(rows.step()).toEqual([everyToken, everyToken]);
});
