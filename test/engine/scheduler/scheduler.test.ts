import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { EngineError } from "../../../engine/contract/errors.ts";
import {
  createImage,
  createRequest,
  createScheduler,
  describeStep,
  eosTokenId,
  resultsOf,
  step,
} from "./create-scheduler.ts";
import type { RequestOverrides, SchedulerParts } from "./create-scheduler.ts";

/** Outputs of the first step that gives the request's sequence a token. */
function firstOutputs(parts: SchedulerParts, tokenId: number) {
  const scheduled = parts.scheduler.schedule();
  return parts.scheduler.update(scheduled, resultsOf(scheduled, tokenId, parts.encoderCache));
}

describe("the token budget", () => {
  test("a prompt longer than the budget is computed in chunks", () => {
    const parts = createScheduler({ maxNumBatchedTokens: 16 });
    parts.scheduler.add(createRequest("a", { numPromptTokens: 40 }));
    expect([step(parts), step(parts), step(parts), step(parts)]).toEqual([["a: 16"], ["a: 16"], ["a: 8"], ["a: 1"]]);
  });

  test("decoding sequences come first, then prompts in progress, then new ones", () => {
    const parts = createScheduler({ maxNumBatchedTokens: 10 });
    parts.scheduler.add(createRequest("a", { numPromptTokens: 3 }));
    parts.scheduler.add(createRequest("b", { numPromptTokens: 12 }));
    parts.scheduler.add(createRequest("c", { numPromptTokens: 6 }));
    expect(step(parts)).toEqual(["a: 3", "b: 7"]);
    expect(step(parts)).toEqual(["a: 1", "b: 5", "c: 4"]);
    expect(step(parts)).toEqual(["a: 1", "b: 1", "c: 2"]);
  });

  test("a step with enough prompt tokens takes no further prompt", () => {
    const parts = createScheduler({ maxNumBatchedTokens: 16, enoughPromptTokens: 6 });
    for (const requestId of ["a", "b", "c"]) parts.scheduler.add(createRequest(requestId, { numPromptTokens: 5 }));
    parts.scheduler.add(createRequest("d", { numPromptTokens: 20 }));
    expect(step(parts)).toEqual(["a: 5", "b: 5"]);
    expect(step(parts)).toEqual(["a: 1", "b: 1", "c: 5", "d: 9"]);
    expect(step(parts)).toEqual(["a: 1", "b: 1", "c: 1", "d: 11"]);
  });

  test("a token of a prompt whose logprobs are wanted counts eight times", () => {
    const parts = createScheduler({ maxNumBatchedTokens: 20 });
    parts.scheduler.add(createRequest("a", { numPromptTokens: 5, samplingParams: { promptLogprobs: 1 } }));
    parts.scheduler.add(createRequest("b", { numPromptTokens: 6 }));
    expect([step(parts), step(parts)]).toEqual([["a: 3"], ["a: 2", "b: 4"]]);
    expect(step(parts)).toEqual(["a: 1", "b: 2"]);
  });

  test("a step may be too small for a token whose logprobs are wanted", () => {
    const parts = createScheduler({ maxNumBatchedTokens: 4 });
    parts.scheduler.add(createRequest("a", { numPromptTokens: 2, samplingParams: { promptLogprobs: 1 } }));
    parts.scheduler.add(createRequest("b", { numPromptTokens: 2 }));
    expect([step(parts), step(parts), step(parts)]).toEqual([["a: 1"], ["a: 1"], ["a: 1", "b: 2"]]);
  });

  test("no more sequences run than there are slots", () => {
    const parts = createScheduler({ numSlots: 2 });
    for (const requestId of ["a", "b", "c"]) parts.scheduler.add(createRequest(requestId));
    expect(step(parts)).toEqual(["a: 4", "b: 4"]);
    expect(parts.scheduler.stats).toMatchObject({ numRequestsRunning: 2, numRequestsWaiting: 1 });
  });
});

describe("late admission", () => {
  test("fills the rest of the budget, and drops chunks of sequences that were aborted", () => {
    const parts = createScheduler({ maxNumBatchedTokens: 12 });
    const { scheduler } = parts;
    scheduler.add(createRequest("a"));
    step(parts);
    scheduler.add(createRequest("b", { numPromptTokens: 7 }));
    const scheduled = scheduler.schedule();
    expect(describeStep(scheduled)).toEqual(["a: 1", "b: 7"]);
    scheduler.abort(["b"]);
    scheduler.add(createRequest("c", { numPromptTokens: 9 }));
    const late = scheduler.admitLate(scheduled);
    // The tokens of "b" are gone from the step, not from its budget.
    expect(describeStep(late)).toEqual(["a: 1", "c: 4"]);
    scheduler.update(late, resultsOf(late));
    expect(step(parts)).toEqual(["a: 1", "c: 5"]);
  });

  test("leaves the rows of decodes that were aborted", () => {
    const parts = createScheduler({ numSlots: 2 });
    const { scheduler } = parts;
    for (const requestId of ["a", "b"]) scheduler.add(createRequest(requestId));
    step(parts);
    const scheduled = scheduler.schedule();
    scheduler.abort(["a"]);
    scheduler.add(createRequest("c"));
    const late = scheduler.admitLate(scheduled);
    expect(describeStep(late)).toEqual(["a: 1", "b: 1"]);
    scheduler.update(late, resultsOf(late));
    expect(step(parts)).toEqual(["b: 1", "c: 4"]);
  });
});

describe("the waiting queue", () => {
  test("is full when all slots are assigned and the limit waits", () => {
    const { scheduler } = createScheduler({ numSlots: 1, maxNumWaiting: 2 });
    for (const requestId of ["a", "b", "c"]) scheduler.add(createRequest(requestId));
    expect(() => scheduler.add(createRequest("d"))).toThrow(
      new EngineError("queue_full", "3 requests are waiting; the limit is 2."),
    );
  });

  test("with length zero still admits a request to a free slot", () => {
    const parts = createScheduler({ numSlots: 1, maxNumWaiting: 0 });
    parts.scheduler.add(createRequest("a"));
    expect(() => parts.scheduler.add(createRequest("b"))).toThrow(EngineError);
    expect(step(parts)).toEqual(["a: 4"]);
  });
});

describe("a prefix kept in a slot", () => {
  const images = [createImage("cat", 2, 8), createImage("dog", 20, 8)];

  /** A scheduler that has computed `numTokens` tokens of a prompt of 40. */
  function schedulerAfter(numTokens: number): SchedulerParts {
    const parts = createScheduler({ numSlots: 1, maxNumBatchedTokens: 64 });
    parts.scheduler.add(createRequest("first", { numPromptTokens: 40, images }));
    const scheduled = parts.scheduler.schedule();
    parts.kvSlots.setNumKeptTokens(0, numTokens);
    parts.scheduler.abort(["first"]);
    parts.scheduler.update(scheduled, resultsOf(scheduled, 7));
    return parts;
  }

  test.for([
    [40, 39, []],
    [28, 28, []],
    [24, 24, ["dog"]],
    [19, 19, ["dog"]],
    [9, 9, ["cat", "dog"]],
  ] as const)(
    "of %i tokens is not computed, and images entirely inside it are not encoded",
    ([kept, first, encoded]) => {
      const { scheduler } = schedulerAfter(kept);
      scheduler.add(createRequest("second", { numPromptTokens: 40, images }));
      const { prefills } = scheduler.schedule();
      expect(prefills).toMatchObject([{ firstToken: first, numTokens: 40 - first }]);
      expect(prefills[0]!.imagesToEncode.map(({ mmHash }) => mmHash)).toEqual(encoded);
      expect(scheduler.stats).toMatchObject({ numPrefixCacheHits: first, numPrefixCacheQueries: 80 });
    },
  );

  test("is not counted as reused while the image behind it has no room", () => {
    const parts = createScheduler({ maxNumBatchedTokens: 24, maxNumEmbeddings: 8 });
    const imageAt20 = (mmHash: string) => ({ numPromptTokens: 48, images: [createImage(mmHash, 20, 8)] });
    parts.scheduler.add(createRequest("first", imageAt20("cat")));
    const scheduled = parts.scheduler.schedule();
    parts.kvSlots.setNumKeptTokens(0, 24);
    parts.scheduler.update(scheduled, resultsOf(scheduled, 7, parts.encoderCache));
    parts.scheduler.add(createRequest("second", imageAt20("dog")));
    parts.scheduler.add(createRequest("third", imageAt20("cat")));
    const tokens = parts.scheduler
      .schedule()
      .prefills.map(({ sequence, firstToken }) => [sequence.requestId, firstToken]);
    expect(tokens).toEqual([["first", 24]]);
    expect(parts.scheduler.abort(["second"])).toMatchObject([{ numCachedTokens: 0 }]);
    expect(parts.scheduler.stats.numPrefixCacheHits).toBe(0);
  });
});

describe("the end of a sequence", () => {
  const endings: [string, RequestOverrides["samplingParams"], number, unknown][] = [
    ["the end token", {}, eosTokenId, { finishReason: "stop", stopReason: null }],
    ["a stop token", { stopTokenIds: [9] }, 9, { finishReason: "stop", stopReason: 9 }],
    ["the last allowed token", { maxTokens: 1 }, 7, { finishReason: "length", stopReason: null }],
    ["an end token it ignores", { ignoreEos: true }, eosTokenId, { finishReason: null }],
    ["a stop token before its minimum", { minTokens: 2, stopTokenIds: [9] }, 9, { finishReason: null }],
    ["the end token as its minimum", { minTokens: 1 }, eosTokenId, { finishReason: "stop" }],
  ];

  test.for(endings)("%s", ([, samplingParams, tokenId, expected]) => {
    const parts = createScheduler();
    parts.scheduler.add(createRequest("a", { samplingParams }));
    expect(firstOutputs(parts, tokenId)).toMatchObject([expected]);
  });

  test("comes at the model length, whatever minimum was requested", () => {
    const parts = createScheduler({ maxModelLen: 6 });
    parts.scheduler.add(createRequest("a", { numPromptTokens: 4, samplingParams: { minTokens: 9 } }));
    step(parts);
    expect(firstOutputs(parts, 7)).toMatchObject([{ finishReason: "length" }]);
    expect(parts.scheduler.hasUnfinished).toBe(false);
  });

  test("a failed sequence ends with its error and the others continue", () => {
    const parts = createScheduler();
    parts.scheduler.add(createRequest("a"));
    parts.scheduler.add(createRequest("b"));
    const scheduled = parts.scheduler.schedule();
    const results = new Map(resultsOf(scheduled));
    const error = new EngineError("runtime_failed", "no memory");
    results.set(scheduled.prefills[0]!.sequence, { kind: "failed", error });
    expect(parts.scheduler.update(scheduled, results)).toMatchObject([
      { requestId: "a", finishReason: "error", tokenIds: [], error: { code: "runtime_failed", message: "no memory" } },
      { requestId: "b", finishReason: null, tokenIds: [7] },
    ]);
    expect(step(parts)).toEqual(["b: 1"]);
  });

  test("a sequence that finds no memory even alone ends, and the steps of the others stay as large", () => {
    const parts = createScheduler();
    for (const requestId of ["a", "b", "c"]) parts.scheduler.add(createRequest(requestId));
    step(parts);
    const scheduled = parts.scheduler.schedule();
    const results = new Map(resultsOf(scheduled));
    const error = new EngineError("out_of_memory", "CUDA failure 2: out of memory");
    const run = { numTokens: 1, numSequences: 1 };
    results.set(scheduled.decodes[0]!, { kind: "out_of_memory", error, run, keepsTokens: true });
    expect(parts.scheduler.update(scheduled, results)).toMatchObject([
      { requestId: "a", finishReason: "error", error: { code: "out_of_memory" } },
      { requestId: "b", tokenIds: [7] },
      { requestId: "c", tokenIds: [7] },
    ]);
    expect(step(parts)).toEqual(["b: 1", "c: 1"]);
  });
});

describe("aborting", () => {
  test("a sequence between the run and its update discards its token", () => {
    const parts = createScheduler();
    parts.scheduler.add(createRequest("a"));
    const scheduled = parts.scheduler.schedule();
    expect(parts.scheduler.abort(["a", "unknown"])).toMatchObject([{ requestId: "a", finishReason: "abort" }]);
    expect(parts.scheduler.update(scheduled, resultsOf(scheduled))).toEqual([]);
    expect(parts.kvSlots.numFree).toBe(4);
  });

  test("at any moment frees slots and images, and no other request loses a token", () => {
    const requests = fc.array(
      fc.record({ numPromptTokens: fc.integer({ min: 1, max: 40 }), hasImage: fc.boolean(), abortAt: fc.nat(60) }),
      { minLength: 1, maxLength: 12 },
    );
    fc.assert(
      fc.property(requests, fc.integer({ min: 1, max: 24 }), (specs, maxNumBatchedTokens) => {
        const parts = createScheduler({ maxNumBatchedTokens, maxNumWaiting: 20, maxNumEmbeddings: 10 });
        const numTokens = new Map<string, number>();
        const ended = new Map<string, string>();
        specs.forEach(({ numPromptTokens, hasImage }, index) => {
          const images = hasImage && numPromptTokens > 8 ? [createImage(`image ${index % 3}`, 2, 6)] : [];
          const samplingParams = { maxTokens: 5 };
          parts.scheduler.add(createRequest(`${index}`, { numPromptTokens, images, samplingParams }));
        });
        for (let moment = 0; parts.scheduler.hasUnfinished; moment++) {
          expect(moment).toBeLessThan(1000);
          const aborted = specs.flatMap(({ abortAt }, index) => (abortAt === moment ? [`${index}`] : []));
          const scheduled = parts.scheduler.schedule();
          const numScheduled = scheduled.prefills.reduce(
            (sum, chunk) => sum + chunk.numTokens,
            scheduled.decodes.length,
          );
          expect(numScheduled).toBeLessThanOrEqual(maxNumBatchedTokens);
          const results = resultsOf(scheduled, 7, parts.encoderCache);
          const outputs = [
            ...(moment % 2 === 0 ? parts.scheduler.abort(aborted) : []),
            ...parts.scheduler.update(scheduled, results),
            ...(moment % 2 === 1 ? parts.scheduler.abort(aborted) : []),
          ];
          for (const { requestId, tokenIds, finishReason } of outputs) {
            expect(ended.has(requestId)).toBe(false);
            numTokens.set(requestId, (numTokens.get(requestId) ?? 0) + tokenIds.length);
            if (finishReason !== null) ended.set(requestId, finishReason);
          }
        }
        for (const [requestId, finishReason] of ended) {
          expect(finishReason === "abort" || numTokens.get(requestId) === 5).toBe(true);
        }
        expect(ended.size).toBe(specs.length);
        expect(parts.kvSlots.numFree).toBe(4);
        expect(parts.kvSlots.usage).toBe(0);
        // Every image has lost its references if an item as large as the whole cache finds room.
        expect(parts.encoderCache.tryAcquire("large", 10)).toBe("to-encode");
      }),
      { numRuns: 200 },
    );
  });
});
