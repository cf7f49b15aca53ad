import * as fc from "fast-check";
import { expect, test } from "vitest";

import { createSamplingParams } from "../../../engine/contract/sampling-params.ts";
import type { SamplingParams } from "../../../engine/contract/sampling-params.ts";
import type { AddedSequence, SequenceBatchUpdate } from "../../../engine/sampling/built-in/added-sequence.ts";
import { AllowedTokensLogitsProcessor } from "../../../engine/sampling/built-in/allowed-tokens.ts";
import { BadWordsLogitsProcessor } from "../../../engine/sampling/built-in/bad-words.ts";
import { createBuiltInProcessors } from "../../../engine/sampling/built-in/built-in-processors.ts";
import { LogitBiasLogitsProcessor } from "../../../engine/sampling/built-in/logit-bias.ts";
import { MinPLogitsProcessor } from "../../../engine/sampling/built-in/min-p.ts";
import { MinTokensLogitsProcessor } from "../../../engine/sampling/built-in/min-tokens.ts";
import { NoRepeatNgramLogitsProcessor } from "../../../engine/sampling/built-in/no-repeat-ngram.ts";
import { PenaltiesLogitsProcessor } from "../../../engine/sampling/built-in/penalties.ts";
import { ThinkingBudgetLogitsProcessor } from "../../../engine/sampling/built-in/thinking-budget.ts";
import type { LogitsProcessor } from "../../../engine/sampling/contract/logits-processor.ts";
import { GuardedLogits } from "../../../engine/sampling/guarded-logits.ts";
import { ProcessorChain } from "../../../engine/sampling/processor-chain.ts";
import { StepLogits } from "../../../engine/sampling/step-logits.ts";
import { GrammarLogitsProcessor } from "../../../engine/structured-output/grammar-logits-processor.ts";
import { engineConfig, eosTokenId } from "./create-sampler.ts";

const VOCAB_SIZE = 6;
const MAX_ROWS = 4;

interface Asked {
  readonly params?: Partial<SamplingParams>;
  readonly badWordsTokenIds?: readonly (readonly number[])[];
  readonly thinkingBudget?: AddedSequence["thinkingBudget"];
}

/** What a row asks for: each processor alone, none, and all together. */
const asked: readonly Asked[] = [
  {},
  { params: { allowedTokenIds: [1, 2, 3] } },
  { badWordsTokenIds: [[3], [1, 2]] },
  { params: { minTokens: 2 } },
  { params: { logitBias: { 4: 3 } } },
  { params: { extraArgs: { no_repeat_ngram_size: 1 } } },
  { params: { extraArgs: { anything: 1 } } },
  { params: { repetitionPenalty: 1.5 } },
  { params: { frequencyPenalty: 0.5 } },
  { params: { presencePenalty: -0.5 } },
  { params: { temperature: 1, minP: 0.3 } },
  { thinkingBudget: { startTokenIds: [0], endTokenIds: [5], numTokens: 1, startsInside: true } },
  {
    params: { allowedTokenIds: [0, 1, 4, 5], minTokens: 1, logitBias: { 0: 1 }, repetitionPenalty: 1.1, minP: 0.2 },
    badWordsTokenIds: [[4]],
  },
];

/** A change of the batch before a step: a row joins, the last one leaves, a row's request changes, two rows swap. */
const change = fc.oneof(
  fc.record({ kind: fc.constant("add" as const), asked: fc.constantFrom(...asked) }),
  fc.record({ kind: fc.constant("remove" as const) }),
  fc.record({ kind: fc.constant("replace" as const), row: fc.nat(MAX_ROWS - 1), asked: fc.constantFrom(...asked) }),
  fc.record({ kind: fc.constant("swap" as const), from: fc.nat(MAX_ROWS - 1), to: fc.nat(MAX_ROWS - 1) }),
  fc.record({ kind: fc.constant("none" as const) }),
);

type Change = typeof change extends fc.Arbitrary<infer T> ? T : never;

/** The live outputs by row, and the update that tells of a change. */
function applyChange(outputs: number[][], what: Change): SequenceBatchUpdate | null {
  const removed: number[] = [];
  const added: AddedSequence[] = [];
  const moved: { from: number; to: number; directionality: "swap" }[] = [];
  const join = (index: number, { params, badWordsTokenIds = [], thinkingBudget }: Asked): void => {
    const outputTokenIds: number[] = [];
    outputs[index] = outputTokenIds;
    const request = { params: createSamplingParams(params), promptTokenIds: [1], outputTokenIds, badWordsTokenIds };
    added.push({ index, ...request, grammar: null, thinkingBudget });
  };
  if (what.kind === "add" && outputs.length < MAX_ROWS) join(outputs.length, what.asked);
  if (what.kind === "remove" && outputs.length > 0) {
    outputs.pop();
    removed.push(outputs.length);
  }
  if (what.kind === "replace" && what.row < outputs.length) join(what.row, what.asked);
  if (what.kind === "swap" && what.from < outputs.length && what.to < outputs.length && what.from !== what.to) {
    [outputs[what.from], outputs[what.to]] = [outputs[what.to]!, outputs[what.from]!];
    moved.push({ from: what.from, to: what.to, directionality: "swap" });
  }
  if (removed.length + added.length + moved.length === 0) return null;
  return { batchSize: outputs.length, removed, added, moved };
}

test("skipped built-in processors leave the logits that all processors of every step would", () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(change, fc.nat(VOCAB_SIZE - 1)), { maxLength: 20 }), (steps) => {
      const grammars = new GrammarLogitsProcessor(engineConfig, { vocabSize: VOCAB_SIZE, grammarOf: () => null });
      const chain = new ProcessorChain(createBuiltInProcessors(engineConfig, [eosTokenId], grammars), []);
      const all: readonly LogitsProcessor[] = [
        new AllowedTokensLogitsProcessor(engineConfig),
        new BadWordsLogitsProcessor(engineConfig),
        new MinTokensLogitsProcessor(engineConfig, [eosTokenId]),
        new LogitBiasLogitsProcessor(engineConfig),
        new NoRepeatNgramLogitsProcessor(engineConfig),
        new PenaltiesLogitsProcessor(engineConfig),
        new ThinkingBudgetLogitsProcessor(engineConfig, grammars),
        new MinPLogitsProcessor(engineConfig),
      ];
      const outputs: number[][] = [];
      for (const [what, token] of steps) {
        const update = applyChange(outputs, what);
        const logits = stepLogits(outputs.length);
        const expected = stepLogits(outputs.length);
        chain.updateState(update);
        const guarded = new GuardedLogits(logits, () => {});
        chain.applyArgmaxChanging(guarded);
        chain.applyArgmaxInvariant(guarded);
        for (const processor of all) processor.updateState(update);
        for (const processor of all) processor.apply(expected);
        expect([...logits.data]).toEqual([...expected.data]);
        for (const output of outputs) output.push(token);
      }
    }),
  );
});

function stepLogits(numRows: number): StepLogits {
  const logits = new StepLogits(MAX_ROWS, VOCAB_SIZE);
  logits.numRequests = numRows;
  for (let row = 0; row < numRows; row++) logits.row(row).set([2, -1, 0.5, 3, -0.25, 1.7]);
  return logits;
}

test("a built-in processor is asked only while a row uses it", () => {
  const builtIns = createBuiltInProcessors(
    engineConfig,
    [eosTokenId],
    new GrammarLogitsProcessor(engineConfig, { vocabSize: VOCAB_SIZE, grammarOf: () => null }),
  );
  const stages = [builtIns.grammars, ...builtIns.argmaxChanging, ...builtIns.afterCustom, ...builtIns.argmaxInvariant];
  const numInUse = (update: SequenceBatchUpdate | null): number => {
    for (const processor of stages) processor.updateState(update);
    return stages.filter(({ inUse }) => inUse !== null).length;
  };
  const outputs: number[][] = [];
  expect(numInUse(applyChange(outputs, { kind: "add", asked: {} }))).toBe(0);
  expect(numInUse(applyChange(outputs, { kind: "add", asked: { params: { minTokens: 1, badWords: ["any"] } } }))).toBe(
    1,
  );
  expect(numInUse(applyChange(outputs, { kind: "add", asked: { params: { logitBias: { 1: 1 } } } }))).toBe(2);
  outputs[1]!.push(3);
  // The minimum is reached.
  expect(numInUse(null)).toBe(1);
  expect(numInUse(applyChange(outputs, { kind: "remove" }))).toBe(0);
});
