import { expect, test } from "vitest";

import { createSamplingParams } from "../../../../engine/contract/sampling-params.ts";
import type { ThinkingBudget } from "../../../../engine/core/engine-request.ts";
import { ThinkingBudgetLogitsProcessor } from "../../../../engine/sampling/built-in/thinking-budget.ts";
import { StepLogits } from "../../../../engine/sampling/step-logits.ts";
import { engineConfig } from "../create-sampler.ts";

const vocabSize = 12;
const budget: ThinkingBudget = { numTokens: 3, startTokenIds: [1, 2], endTokenIds: [7, 8, 7, 9], startsInside: true };

/** Ids that may follow each beginning of `tokenIds`, one list per step; the processor sees one token per step. */
function allowedAfter(tokenIds: readonly number[], thinkingBudget: ThinkingBudget, forbidden: readonly number[] = []) {
  const allows = (_rowIndex: number, tokenId: number) => !forbidden.includes(tokenId);
  const processor = new ThinkingBudgetLogitsProcessor(engineConfig, { allows });
  const outputTokenIds: number[] = [];
  const steps: (number | "any")[] = [];
  for (const tokenId of [...tokenIds, -1]) {
    const added = {
      index: 0,
      params: createSamplingParams({}),
      promptTokenIds: [0],
      outputTokenIds,
      badWordsTokenIds: [],
      grammar: null,
      thinkingBudget,
    };
    const isFirst = outputTokenIds.length === 0;
    processor.updateState(isFirst ? { batchSize: 1, removed: [], added: [added], moved: [] } : null);
    const logits = new StepLogits(1, vocabSize);
    logits.numRequests = 1;
    logits.row(0).fill(0.5);
    processor.apply(logits);
    const left = [...logits.row(0)].flatMap((logit, id) => (logit === -Infinity ? [] : [id]));
    steps.push(left.length === 1 ? left[0]! : "any");
    outputTokenIds.push(tokenId);
  }
  return steps;
}

test.for<readonly [string, readonly number[], Partial<ThinkingBudget>, readonly (number | "any")[]]>([
  ["after its tokens, the end marker is written", [5, 5, 5, 7, 8, 7, 9], {}, ["any", "any", "any", 7, 8, 7, 9, "any"]],
  ["a budget of 0 ends the thinking at once", [7, 8, 7, 9], { numTokens: 0 }, [7, 8, 7, 9, "any"]],
  ["a begun marker is continued", [5, 7, 8, 7, 9], {}, ["any", "any", "any", 7, 9, "any"]],
  ["a marker that begins again is continued from there", [5, 7, 8, 7, 8], {}, ["any", "any", "any", 7, 9, 7]],
  [
    "thinking that ends earlier is left alone",
    [5, 7, 8, 7, 9, 5],
    { numTokens: 6 },
    Array.from({ length: 7 }, () => "any"),
  ],
  [
    "a start in the output is waited for",
    [1, 2, 5, 5, 5],
    { startsInside: false },
    ["any", "any", "any", "any", "any", 7],
  ],
  [
    "an answer without thinking is free",
    [5, 5, 5, 1, 2, 5, 5, 5],
    { startsInside: false },
    Array.from({ length: 9 }, () => "any"),
  ],
])("%s", ([, tokenIds, changes, expected]) => {
  expect(allowedAfter(tokenIds, { ...budget, ...changes })).toEqual(expected);
});

test("a marker that the grammar forbids is tried again in the next step", () => {
  expect(allowedAfter([5, 5, 5, 5], budget, [7])).toEqual(["any", "any", "any", "any", "any"]);
});
