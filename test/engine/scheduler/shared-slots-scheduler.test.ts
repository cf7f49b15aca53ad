/** The scheduler over KV slots that share less memory than they would take at full length. */
import { describe, expect, test } from "vitest";

import { createImage, createRequest, createScheduler, describeStep, resultsOf } from "./create-scheduler.ts";
import type { SchedulerParts } from "./create-scheduler.ts";

/** One sequence of 64 tokens, and a block of the other slot. */
const fewestBlocks = 9;

function step({ scheduler }: SchedulerParts): string[] {
  const scheduled = scheduler.schedule();
  scheduler.update(scheduled, resultsOf(scheduled));
  return describeStep(scheduled);
}

/** Runs both requests until the younger one has been preempted. Returns the number of tokens that it had then. */
function runUntilPreempted(parts: SchedulerParts): number {
  const samplingParams = { maxTokens: 45, ignoreEos: true };
  for (const requestId of ["old", "young"]) parts.scheduler.add(createRequest(requestId, { samplingParams }));
  let numTokens = 4;
  while (parts.scheduler.stats.numPreemptions === 0) if (step(parts).includes("young: 1")) numTokens++;
  // The token that was sampled after the prompt.
  return numTokens + 1;
}

describe.for([false, true])("with other weights for prompts: %s", (widensPrompts) => {
  test("preempts the younger of two sequences, and resumes it when the older one has ended", () => {
    const parts = createScheduler({ numSlots: 2, numBlocks: fewestBlocks, maxNumBatchedTokens: 64, widensPrompts });
    const numTokens = runUntilPreempted(parts);
    expect(parts.scheduler.stats).toMatchObject({ numRequestsRunning: 1, numRequestsWaiting: 1 });
    const steps: string[][] = [];
    while (parts.scheduler.hasUnfinished) steps.push(step(parts));
    const ofYoung = steps.filter((descriptions) => !descriptions.includes("old: 1")).map(([first]) => first);
    expect(ofYoung[0]).toBe(widensPrompts ? "young: 4" : `young: ${numTokens}`);
    expect(new Set(ofYoung.slice(1))).toEqual(new Set(["young: 1"]));
    expect(parts.scheduler.stats).toMatchObject({ numPreemptions: 1, numGenerationTokens: 90, kvCacheUsage: 0 });
  });
});

test("as many short sequences run as there are slots, though two of full length have no room", () => {
  const parts = createScheduler({ numSlots: 6, numBlocks: 13, maxNumBatchedTokens: 64 });
  const samplingParams = { maxTokens: 3, ignoreEos: true };
  for (let index = 0; index < 6; index++) parts.scheduler.add(createRequest(`${index}`, { samplingParams }));
  step(parts);
  expect(parts.scheduler.stats.numRequestsRunning).toBe(6);
});

test("a prompt waits until it fits, with a block to grow for every running sequence", () => {
  const parts = createScheduler({ numSlots: 2, numBlocks: fewestBlocks, maxNumBatchedTokens: 128 });
  const samplingParams = { maxTokens: 10, ignoreEos: true };
  for (const requestId of ["first", "second"]) {
    parts.scheduler.add(createRequest(requestId, { numPromptTokens: 36, samplingParams, cacheSalt: requestId }));
  }
  expect(step(parts)).toEqual(["first: 36"]);
  expect(parts.scheduler.stats).toMatchObject({ numRequestsRunning: 1, numRequestsWaiting: 1 });
  while (parts.scheduler.hasUnfinished) step(parts);
  expect(parts.scheduler.stats).toMatchObject({ numPreemptions: 0, numGenerationTokens: 20 });
});

test("a prefix that is copied for a sequence that waits for its image keeps its memory", () => {
  const parts = createScheduler({ numSlots: 3, numBlocks: 12, maxNumBatchedTokens: 64, encodesInBackground: true });
  const samplingParams = { maxTokens: 20, ignoreEos: true };
  const shared = Array.from({ length: 32 }, (_, index) => 10 + index);
  parts.scheduler.add(createRequest("first", { promptTokenIds: [...shared, 50, 51], samplingParams }));
  expect(step(parts)).toEqual(["first: 34"]);
  parts.kvSlots.setNumKeptTokens(0, 34);
  const images = [createImage("cat", 32, 2)];
  parts.scheduler.add(createRequest("picture", { promptTokenIds: [...shared, 60, 61, 62], images, samplingParams }));
  const promptTokenIds = Array.from({ length: 24 }, (_, index) => 100 + index);
  parts.scheduler.add(createRequest("other", { promptTokenIds, samplingParams }));
  // The copied tokens take 5 blocks and those of "first" as many, so "other" finds 2 of the 4 that it needs.
  const scheduled = parts.scheduler.schedule();
  expect(scheduled.transfers).toEqual([{ kind: "copy", fromSlot: 0, toSlot: 1, numTokens: 32 }]);
  expect(describeStep(scheduled)).toEqual(["first: 1"]);
  expect(parts.scheduler.stats).toMatchObject({ numRequestsRunning: 2, numRequestsWaiting: 1 });
});

test("a sequence preempts others when its image is encoded, not while it waits for it", () => {
  const overrides = { numSlots: 3, numBlocks: fewestBlocks, maxNumBatchedTokens: 64, encodesInBackground: true };
  const parts = createScheduler({ ...overrides, keepsImagesWhole: true, maxNumEmbeddings: 48 });
  const picture = { numPromptTokens: 42, images: [createImage("cat", 0, 40)] };
  parts.scheduler.add(createRequest("picture", picture));
  for (const requestId of ["a", "b"]) parts.scheduler.add(createRequest(requestId, { cacheSalt: requestId }));
  expect(step(parts)).toEqual(["a: 4", "b: 4"]);
  for (let count = 0; count < 8; count++) expect(step(parts)).toEqual(["a: 1", "b: 1"]);
  expect(parts.scheduler.stats.numPreemptions).toBe(0);
  parts.encoderCache.tryStore("cat", 40, new Float32Array(1));
  expect(step(parts)).toEqual(["a: 1", "picture: 42"]);
  expect(parts.scheduler.stats.numPreemptions).toBe(1);
});

test("a sequence that comes to an image preempts no other before the image is encoded", () => {
  const overrides = { numSlots: 3, numBlocks: fewestBlocks, maxNumBatchedTokens: 16, encodesInBackground: true };
  const parts = createScheduler({ ...overrides, keepsImagesWhole: true, maxNumEmbeddings: 32 });
  const images = [createImage("cat", 0, 8), createImage("dog", 10, 14)];
  parts.scheduler.add(createRequest("pictures", { numPromptTokens: 26, images, cacheSalt: "pictures" }));
  parts.scheduler.add(createRequest("a", { numPromptTokens: 24, cacheSalt: "a" }));
  parts.scheduler.add(createRequest("b", { numPromptTokens: 8, cacheSalt: "b" }));
  expect([step(parts), step(parts)]).toEqual([["a: 16"], ["a: 8", "b: 8"]]);
  parts.encoderCache.tryStore("cat", 8, new Float32Array(1));
  expect(step(parts)).toEqual(["a: 1", "b: 1", "pictures: 10"]);
  expect(step(parts)).toEqual(["a: 1", "b: 1"]);
  expect(parts.scheduler.stats.numPreemptions).toBe(0);
  parts.encoderCache.tryStore("dog", 14, new Float32Array(1));
  expect(step(parts)).toEqual(["a: 1", "pictures: 14"]);
  expect(parts.scheduler.stats.numPreemptions).toBe(1);
});
