import { expect, test } from "vitest";

import type { SamplingParams } from "../../../engine/contract/sampling-params.ts";
import type { SpeculativeConfig } from "../../../engine/contract/speculative-config.ts";
import type { Sequence } from "../../../engine/scheduler/sequence.ts";
import { createRequest, createScheduler } from "./create-scheduler.ts";
import type { SchedulerOverrides, SchedulerParts } from "./create-scheduler.ts";

const speculativeConfig: SpeculativeConfig = {
  method: "ngram",
  numSpeculativeTokens: 4,
  promptLookupMax: 2,
  promptLookupMin: 1,
};
/** After 11 come 12, 13 and 14. */
const promptTokenIds = [10, 11, 12, 13, 14, 15];

/** Samples one token of every sequence. Returns the drafts that the step checks, by request. */
function step({ scheduler, kvSlots }: SchedulerParts, tokenOf: (sequence: Sequence) => number) {
  const scheduled = scheduler.schedule();
  for (const { sequence, numTokens } of scheduled.prefills) kvSlots.setNumKeptTokens(sequence.kvSlot!, numTokens);
  const drafts: Record<string, readonly number[] | undefined> = {};
  for (const { draft, requestId, numTokens, kvSlot } of scheduled.decodes) {
    const end = draft === null ? numTokens : draft.firstToken + draft.tokenIds.length;
    kvSlots.setNumKeptTokens(kvSlot!, end);
    if (draft?.firstToken === numTokens) drafts[requestId] = draft.tokenIds;
  }
  const sequences = [...scheduled.decodes, ...scheduled.prefills.map(({ sequence }) => sequence)];
  const results = sequences.map(
    (sequence) =>
      [sequence, { kind: "sampled", tokenId: tokenOf(sequence), logprobs: null, promptLogprobs: null }] as const,
  );
  scheduler.update(scheduled, new Map(results));
  return { drafts, sequences };
}

function start(samplingParams: Partial<SamplingParams> = {}, overrides: SchedulerOverrides = {}): SchedulerParts {
  const parts = createScheduler({ speculativeConfig, ...overrides });
  parts.scheduler.add(createRequest("a", { promptTokenIds, samplingParams }));
  return parts;
}

test("proposes the tokens that followed the same tokens earlier, and nothing while the output follows them", () => {
  const parts = start();
  step(parts, () => 11);
  const { drafts, sequences } = step(parts, () => 12);
  expect(drafts).toEqual({ a: [12, 13, 14, 15] });
  expect(step(parts, () => 13).drafts).toEqual({});
  expect(sequences[0]!.draft?.tokenIds).toEqual([12, 13, 14, 15]);
  step(parts, () => 99);
  expect(sequences[0]!.draft).toBeNull();
  expect(parts.scheduler.stats.drafts).toEqual({
    numDrafts: 1,
    numDraftTokens: 4,
    numAcceptedTokens: 2,
    numAcceptedPerPosition: [1, 1, 0, 0],
  });
});

test("keeps only computed tokens of a sequence that ends within a draft, and of one whose draft was wrong", () => {
  const parts = start({ stopTokenIds: [13] });
  step(parts, () => 11);
  const { sequences } = step(parts, () => 12);
  const slot = sequences[0]!.kvSlot!;
  expect(parts.kvSlots.numKeptTokens(slot)).toBe(11);
  step(parts, () => 13);
  expect(sequences[0]).toMatchObject({ draft: null, finishReason: "stop" });
  expect(parts.kvSlots.numKeptTokens(slot)).toBe(8);

  const rejecting = start();
  step(rejecting, () => 11);
  step(rejecting, () => 77);
  expect(rejecting.kvSlots.numKeptTokens(slot)).toBe(7);
});

test("does not compute more tokens than an answer may have, nor than fit into the model", () => {
  const byLength = start({ maxTokens: 4 });
  step(byLength, () => 11);
  expect(step(byLength, () => 12).drafts).toEqual({ a: [12, 13] });
  const byModel = start({}, { maxModelLen: 9 });
  step(byModel, () => 11);
  expect(step(byModel, () => 12).drafts).toEqual({ a: [12] });
  // Each token is 3 positions further than its index.
  const byPositions = createScheduler({ speculativeConfig, maxModelLen: 12 });
  const positions = { axes: new Int32Array(18), next: 9 };
  byPositions.scheduler.add({ ...createRequest("a", { promptTokenIds }), positions });
  step(byPositions, () => 11);
  expect(step(byPositions, () => 12).drafts).toEqual({ a: [12] });
  const byBudget = start({}, { maxNumBatchedTokens: 6 });
  byBudget.scheduler.add(createRequest("b", { numPromptTokens: 2 }));
  step(byBudget, () => 11);
  expect(step(byBudget, () => 50).drafts).toEqual({ a: [12, 13, 14] });
});

test("pauses longer after each draft whose first token is wrong, and not after one that was right", () => {
  const parts = start({}, { maxModelLen: 512, speculativeConfig: { ...speculativeConfig, promptLookupMax: 1 } });
  const draftedAt = (numSteps: number, tokenOf: (index: number) => number): number[] => {
    const steps: number[] = [];
    for (let index = 0; index < numSteps; index++) {
      if (step(parts, () => tokenOf(index)).drafts["a"] !== undefined) steps.push(index);
    }
    return steps;
  };
  // Always a known token, and never the one that followed it.
  const wrong = draftedAt(100, (index) => (index % 2 === 0 ? 10 : 14));
  expect(wrong.slice(1).map((at, index) => at - wrong[index]!)).toEqual([2, 3, 5, 9, 17, 33]);
  step(parts, () => 500);
  for (let more = 0; more < 40; more++) step(parts, () => 1000 + more);
  step(parts, () => 12);
  expect(step(parts, () => 13).drafts["a"]).toBeDefined();
  step(parts, () => 2000);
  step(parts, () => 12);
  expect(step(parts, () => 2001).drafts["a"]).toBeDefined();
});

test("drafts for two sequences if each has a draft, and for no third", () => {
  const parts = start();
  parts.scheduler.add(createRequest("b", { promptTokenIds: [20, 21, 22, 23], cacheSalt: "b" }));
  const known: Record<string, number> = { a: 11, b: 21, c: 31 };
  step(parts, ({ requestId }) => (requestId === "a" ? 11 : 60));
  // Nothing is known to follow 60.
  expect(step(parts, ({ requestId }) => known[requestId]!).drafts).toEqual({});
  expect(Object.keys(step(parts, () => 70).drafts)).toEqual(["a", "b"]);
  parts.scheduler.add(createRequest("c", { promptTokenIds: [30, 31, 32, 33], cacheSalt: "c" }));
  for (let index = 0; index < 4; index++) expect(step(parts, ({ requestId }) => known[requestId]!).drafts).toEqual({});
});
